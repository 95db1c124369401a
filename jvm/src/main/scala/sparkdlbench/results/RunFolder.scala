package sparkdlbench.results

import sparkdlbench.common.{ConfigurationException, Json}
import sparkdlbench.config.Redaction

import java.io.{IOException, Writer}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.attribute.PosixFilePermission.{OTHERS_EXECUTE, OTHERS_READ, OTHERS_WRITE}
import java.nio.file.{Files, Path, Paths, StandardCopyOption, StandardOpenOption}
import java.time.format.DateTimeFormatter
import java.time.{Instant, ZoneOffset}
import scala.collection.immutable.ListMap
import scala.util.Try

/**
 * The folder of one run: run.json, events.jsonl, page.html, summary.json and others (docs/reference/metrics.md). Files are replaced whole (a
 * reader never sees half of one); events are appended and flushed one by one. They hold the configuration, without its secrets, and other
 * users of the host may not read them. Used by one thread at a time.
 *
 * A folder that can no longer be written (a full disk) ends no run: what was written is copied to a temporary folder, and the rest
 * is written there. `warning` says so.
 *
 * @param spare
 *   makes the folder to go to
 */
final class RunFolder private[results] (first: Path, spare: () => Path) extends AutoCloseable {
  @volatile private var current = first
  @volatile private var told: Option[String] = None
  private var lost = false
  private var events: Writer = open()

  def path: Path = current

  /** Where the results are instead, or that they are lost, and why; None where all is well. */
  def warning: Option[String] = told

  /** Appends one MLPerf-style event. */
  def event(key: String, value: Any, metadata: (String, Any)*): Unit = {
    val line = Json.line(
      Redaction.map(
        ListMap[String, Any](
          "schema" -> RunFolder.Schema,
          "time_ms" -> System.currentTimeMillis(),
          "key" -> key,
          "value" -> value,
          "metadata" -> ListMap(metadata: _*)
        )
      )
    )
    kept {
      events.write(line + "\n")
      events.flush()
    }
  }

  def write(file: String, content: String): Unit = kept {
    val partial = current.resolve(s".$file.partial")
    try {
      Files.write(partial, content.getBytes(UTF_8))
      RunFolder.hideFromOthers(partial)
      Files.move(partial, current.resolve(file), StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.ATOMIC_MOVE)
    } finally Files.deleteIfExists(partial): Unit
  }

  /** Writes anything else into the folder. */
  def writeBelow(name: String)(use: Path => Unit): Unit = kept(use(current.resolve(name)))

  private def open(): Writer = {
    val file = current.resolve(RunFolder.Events)
    val writer = Files.newBufferedWriter(file, UTF_8, StandardOpenOption.CREATE, StandardOpenOption.APPEND)
    RunFolder.hideFromOthers(file)
    writer
  }

  /** Events come from threads that watch the executors as well. */
  private def kept(write: => Unit): Unit = synchronized(if (!lost) keep(write))

  private def keep(write: => Unit): Unit =
    try write
    catch {
      case cause: IOException =>
        try {
          if (current == first) leave(cause)
          write
        } catch {
          case again: IOException =>
            lost = true
            told = Some(
              s"The results folder $first can no longer be written (${RunFolder.reason(cause)}), nor can a temporary one (${RunFolder.reason(again)}): this " +
                "run's results are not kept. Its weights are still with the caller; save them elsewhere."
            )
        }
    }

  private def leave(cause: IOException): Unit = {
    val old = current
    Try(events.close())
    current = Files.createDirectories(spare().resolve(first.getFileName))
    Option(old.toFile.listFiles).toSeq.flatten.filter(_.isFile).foreach { file =>
      Try(Files.copy(file.toPath, current.resolve(file.getName), StandardCopyOption.REPLACE_EXISTING))
    }
    events = open()
    told = Some(
      s"The results folder $first can no longer be written (${RunFolder.reason(cause)}), so this run's results are in $current. Copy what you need " +
        "from there, and make room or name another folder with results=DIR."
    )
  }

  override def close(): Unit = kept(events.close())

  /** Of a run that could not begin: nothing is left, unless something was written. */
  def discard(): Unit = {
    close()
    Try {
      val file = path.resolve(RunFolder.Events)
      if (Files.size(file) == 0) { Files.delete(file); Files.delete(path) }
    }: Unit
  }
}

object RunFolder {

  /** Version of the files' layout (docs/reference/metrics.md). */
  val Schema = 1
  private val Events = "events.jsonl"
  private val stamp = DateTimeFormatter.ofPattern("yyyyMMdd-HHmmss-SSS").withZone(ZoneOffset.UTC)

  private def hideFromOthers(file: Path): Unit =
    if (file.getFileSystem.supportedFileAttributeViews.contains("posix")) {
      val permissions = Files.getPosixFilePermissions(file)
      Seq(OTHERS_READ, OTHERS_WRITE, OTHERS_EXECUTE).foreach(permissions.remove(_))
      Files.setPosixFilePermissions(file, permissions): Unit
    }

  /** Makes `<results>/<time>-<name>/`. */
  def create(results: String, name: String): RunFolder = {
    val safe = name.replaceAll("[^A-Za-z0-9._-]", "-")
    val path = Paths.get(results).toAbsolutePath.normalize.resolve(s"${stamp.format(Instant.now())}-$safe")
    try new RunFolder(Files.createDirectories(path), () => Files.createTempDirectory("sparkdl-bench-results-"))
    catch {
      case e: IOException =>
        throw new ConfigurationException(
          s"The results folder $path cannot be made (${e.getMessage}). Name a folder that can be written with --set results=DIR.",
          e
        )
    }
  }

  private def reason(cause: IOException): String = s"${cause.getClass.getSimpleName}: ${cause.getMessage}"
}
