package sparkdlbench.metrics

import sparkdlbench.config.{Key, KeyGroup}

import java.lang.management.{BufferPoolMXBean, ManagementFactory}
import java.nio.file.{Files, Path, Paths}
import java.util.concurrent.{Executors, ScheduledExecutorService, TimeUnit}
import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._
import scala.util.Try

/**
 * What one process uses at one moment. What the system does not tell is -1.
 *
 * @param millis
 *   since 1970
 * @param cpuNanos
 *   processor time of all its threads since it began
 * @param directBytes
 *   of direct buffers: the JVM's, and those that Netty takes past it
 * @param gcMillis
 *   of all its collectors since it began
 * @param network
 *   bytes received and sent by interface since the host began: of the whole host
 * @param readBytes
 *   read from disks by this process since it began
 * @param gpus
 *   by index: of the whole host; empty where it has none
 */
final case class ResourceSample(
    millis: Long,
    cpuNanos: Long,
    residentBytes: Long,
    heapBytes: Long,
    directBytes: Long,
    gcMillis: Long,
    network: Map[String, (Long, Long)],
    readBytes: Long,
    writtenBytes: Long,
    gpus: Map[String, GpuSample] = Map.empty
)

/**
 * What sampling itself takes of a process.
 *
 * @param cpuNanos
 *   processor time of the sampler's own thread; -1 where the JVM does not tell
 * @param nanos
 *   for how long it sampled
 */
final case class SamplerCost(cpuNanos: Long, nanos: Long) {
  def +(other: SamplerCost): SamplerCost =
    SamplerCost(if (cpuNanos < 0 || other.cpuNanos < 0) -1 else cpuNanos + other.cpuNanos, nanos + other.nanos)
}

object SamplerCost {
  val Zero: SamplerCost = SamplerCost(0, 0)
}

/**
 * What a sampler hands on at a time.
 *
 * @param cost
 *   since the batch before
 * @param last
 *   the sampler is being closed, and whoever closes it waits until these have been handed on
 */
final case class SampleBatch(samples: Seq[ResourceSample], cost: SamplerCost, last: Boolean)

/**
 * Samples of one process of a run.
 *
 * @param process
 *   an executor's id, or `driver`
 * @param cost
 *   of taking them, since the report before
 */
final case class ResourceReport(
    runId: String,
    process: String,
    host: String,
    samples: Seq[ResourceSample],
    cost: SamplerCost = SamplerCost.Zero
)

/** Reads this process's use of the machine, from the JVM and from /proc. */
object ResourceSample {
  private val Io = Paths.get("/proc/self/io")
  private val Read = "read_bytes:"
  private val Written = "write_bytes:"
  private val Statm = Paths.get("/proc/self/statm")
  private val Net = Paths.get("/proc/net/dev")
  private val PageBytes = 4096L // of x86-64; other platforms tell it nowhere below /proc
  private val system = ManagementFactory.getOperatingSystemMXBean match {
    case found: com.sun.management.OperatingSystemMXBean => Some(found)
    case _ => None
  }
  private val memory = ManagementFactory.getMemoryMXBean
  private val collectors = ManagementFactory.getGarbageCollectorMXBeans.asScala.toSeq
  private val direct =
    ManagementFactory.getPlatformMXBeans(classOf[BufferPoolMXBean]).asScala.find(_.getName == "direct")

  def now(): ResourceSample = {
    val io = lines(Io)
    ResourceSample(
      System.currentTimeMillis(),
      cpuNanos,
      residentBytes,
      heapBytes,
      directBytes,
      gcMillis,
      network,
      counter(io, Read),
      counter(io, Written)
    )
  }

  def cpuNanos: Long = system.fold(-1L)(_.getProcessCpuTime)
  def heapBytes: Long = memory.getHeapMemoryUsage.getUsed

  /** The JVM's pool, and what Netty takes beside it. */
  def directBytes: Long = direct.fold(-1L)(_.getMemoryUsed + NettyMemory.outsidePool)
  def gcMillis: Long = collectors.map(each => math.max(0L, each.getCollectionTime)).sum
  def residentBytes: Long =
    lines(Statm).headOption.flatMap(line => Try(line.split(' ')(1).toLong * PageBytes).toOption).getOrElse(-1L)

  /** Read from disks by this process since it began. */
  def readBytes: Long = counter(lines(Io), Read)
  def writtenBytes: Long = counter(lines(Io), Written)

  /** Received and sent bytes by interface. */
  def network: Map[String, (Long, Long)] = lines(Net)
    .drop(2)
    .flatMap { line =>
      val (name, rest) = line.splitAt(line.indexOf(':'))
      val counts = rest.drop(1).trim.split(" +")
      Try(name.trim -> ((counts(0).toLong, counts(8).toLong))).toOption
    }
    .toMap

  private def counter(from: Seq[String], name: String): Long =
    from.find(_.startsWith(name)).flatMap(line => Try(line.drop(name.length).trim.toLong).toOption).getOrElse(-1L)

  private def lines(file: Path): Seq[String] = Try(Files.readAllLines(file).asScala.toSeq).getOrElse(Nil)
}

/**
 * Samples this process until it is closed, in a thread of its own, and hands the samples on in batches, from that thread.
 *
 * @param hertz
 *   samples a second
 * @param batchMillis
 *   how often samples are handed on
 * @param endMillis
 *   longest wait, when it is closed, until the last ones are
 */
final class ResourceSampler(
    hertz: Double,
    batchMillis: Long,
    deliver: SampleBatch => Unit,
    endMillis: Long = ResourceSampler.EndMillis
) extends AutoCloseable {
  private val batch = math.max(1, (hertz * batchMillis / 1000).toInt)
  private val waiting = ArrayBuffer.empty[ResourceSample]

  /** What was told of the thread's processor time, and when. */
  private var toldCpuNanos = 0L
  private var toldAt = System.nanoTime()
  private val gpus = GpuUse.start(hertz)
  private val clock: ScheduledExecutorService = Executors.newSingleThreadScheduledExecutor { (task: Runnable) =>
    val thread = new Thread(task, "sparkdl-resources")
    thread.setDaemon(true)
    thread
  }
  clock.scheduleAtFixedRate(() => sample(), 0, (1e6 / hertz).toLong, TimeUnit.MICROSECONDS)

  /** What goes wrong here must not end the sampling, much less the run. */
  private def sample(): Unit = {
    Try {
      waiting += now()
      if (waiting.size >= batch) flush(last = false)
    }
    ()
  }

  private def now(): ResourceSample =
    ResourceSample.now().copy(gpus = gpus.fold(Map.empty[String, GpuSample])(_.latest))

  private def flush(last: Boolean): Unit = {
    val taken = waiting.toList
    waiting.clear()
    if (taken.nonEmpty) deliver(SampleBatch(taken, takeCost(), last))
  }

  /** Since it was taken last. In the sampler's thread, whose processor time it is. */
  private def takeCost(): SamplerCost = {
    val (cpuNanos, at) = (ResourceSampler.threadCpuNanos, System.nanoTime())
    val cost = SamplerCost(if (cpuNanos < 0) -1 else cpuNanos - toldCpuNanos, at - toldAt)
    toldCpuNanos = cpuNanos
    toldAt = at
    cost
  }

  /** One sample more, and what was not handed on yet. */
  private def end(): Unit = {
    Try(waiting += now())
    Try(flush(last = true))
    ()
  }

  override def close(): Unit = {
    if (!clock.isShutdown) {
      clock.execute(() => end()) // comes before the end of the thread: the clock stops what repeats itself alone
      clock.shutdown()
    }
    clock.awaitTermination(endMillis, TimeUnit.MILLISECONDS)
    gpus.foreach(_.close())
  }
}

object ResourceSampler {
  val hertz: Key[Double] =
    Key.number("resources.hertz", "4", 0, "Samples a second of what driver and executors use (resources.json); 0: none")
  val keys: Seq[Key[_]] = Seq(hertz)

  /** How often an executor tells the driver. */
  val BatchMillis = 2000L

  private val EndMillis = 10000L
  private val threads = ManagementFactory.getThreadMXBean

  /** Of the calling thread since it began; -1 where the JVM does not tell. */
  private def threadCpuNanos: Long =
    if (threads.isCurrentThreadCpuTimeSupported) threads.getCurrentThreadCpuTime else -1L
}

final class ResourceKeys extends KeyGroup {
  def keys: Seq[Key[_]] = ResourceSampler.keys
}
