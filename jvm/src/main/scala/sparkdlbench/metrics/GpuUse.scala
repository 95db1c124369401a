package sparkdlbench.metrics

import java.io.{BufferedReader, File, IOException, InputStreamReader}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path, Paths}
import java.util.concurrent.{ConcurrentHashMap, TimeUnit}
import scala.jdk.CollectionConverters._
import scala.util.Try

/**
 * What one GPU of the host does at one moment, for all processes together.
 *
 * @param use
 *   share of the last moments in which something ran on it, 0 to 1; -1 where the driver does not tell
 * @param memoryBytes
 *   of its memory in use; -1 where the driver does not tell
 */
final case class GpuSample(use: Double, memoryBytes: Long)

/**
 * The host's NVIDIA GPUs, from NVIDIA's own program over NVML: one `nvidia-smi` that prints all of them at a steady rate, for as long as this is
 * open. A program that every host with such a GPU has, where a binding to NVML would be one dependency more, with native code.
 */
final class GpuUse private (process: Process) extends AutoCloseable {
  private val newest = new ConcurrentHashMap[String, GpuSample]()
  private val reader = new Thread(() => read(), "sparkdl-gpu")
  reader.setDaemon(true)
  reader.start()

  /** The newest sample of each GPU, by its index; empty before the first, and when the program has ended. */
  def latest: Map[String, GpuSample] = newest.asScala.toMap

  private def read(): Unit = {
    val lines = new BufferedReader(new InputStreamReader(process.getInputStream, UTF_8))
    try
      Iterator.continually(lines.readLine()).takeWhile(_ != null).flatMap(GpuUse.parse).foreach {
        case (index, sample) => newest.put(index, sample)
      }
    catch { case _: IOException => () } // it was closed
    finally newest.clear()
  }

  override def close(): Unit = {
    GpuUse.opened.remove(this)
    process.destroy()
    if (!process.waitFor(GpuUse.EndMillis, TimeUnit.MILLISECONDS)) process.destroyForcibly()
    reader.join(GpuUse.EndMillis)
  }
}

object GpuUse {
  private val Program = "nvidia-smi"
  private val EndMillis = 1000L
  private val MebiByte = 1L << 20

  /** Those of this process that are not closed: one for each run that samples here. */
  private val opened: java.util.Set[GpuUse] = ConcurrentHashMap.newKeySet[GpuUse]()

  /** The newest sample of each of the host's GPUs, by index, while any run of this process samples them; empty otherwise. */
  def current: Map[String, GpuSample] =
    opened.iterator.asScala.map(_.latest).find(_.nonEmpty).getOrElse(Map.empty[String, GpuSample])

  /** None where the host has no such program, or it cannot be started. @param searched folders to look for it in */
  def start(hertz: Double, searched: Seq[Path] = path): Option[GpuUse] =
    searched.map(_.resolve(Program)).find(file => Files.isExecutable(file) && !Files.isDirectory(file)).flatMap {
      file =>
        val command = Seq(
          file.toString,
          "--query-gpu=index,utilization.gpu,memory.used",
          "--format=csv,noheader,nounits",
          s"--loop-ms=${math.max(50L, (1000 / hertz).toLong)}"
        )
        val builder = new ProcessBuilder(command.asJava).redirectError(ProcessBuilder.Redirect.DISCARD)
        val started = Try(new GpuUse(builder.start())).toOption
        started.foreach(use => opened.add(use))
        started
    }

  /** `0, 37, 1024`: index, per cent, MiB. Other lines, such as complaints, are none. */
  private[metrics] def parse(line: String): Option[(String, GpuSample)] = line.split(',').map(_.trim) match {
    case Array(index, use, memory) if index.nonEmpty && index.forall(_.isDigit) =>
      val share = Try(use.toDouble / 100).getOrElse(-1.0)
      Some(index -> GpuSample(share, Try(memory.toLong * MebiByte).getOrElse(-1L)))
    case _ => None
  }

  private def path: Seq[Path] =
    sys.env.getOrElse("PATH", "").split(File.pathSeparator).toSeq.filter(_.nonEmpty).map(Paths.get(_))
}
