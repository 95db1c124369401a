package sparkdlbench.metrics

import java.util.concurrent.ConcurrentHashMap
import scala.collection.immutable.ListMap
import scala.collection.mutable

/**
 * The sum over the driver and the executors of a run.
 *
 * @param cores
 *   processor cores in use
 */
final case class ResourceUse(cores: Double, residentBytes: Long, processes: Int)

/**
 * The samples of one run's processes, in the driver.
 *
 * @param hertz
 *   samples a second of each process
 * @param nanoTime
 *   the driver's clock
 */
final class ResourceLog private[metrics] (hertz: Double, nanoTime: () => Long = () => System.nanoTime()) {
  private val reports = mutable.LinkedHashMap.empty[(String, String), IndexedSeq[ResourceSample]]
  private val costs = mutable.Map.empty[(String, String), SamplerCost]

  /** When each process told last, by the driver's clock: those of other hosts may differ from it. */
  private val toldAt = mutable.Map.empty[(String, String), Long]
  private val liveNanos = (ResourceLog.LivePeriods * math.max(ResourceSampler.BatchMillis * 1e6, 1e9 / hertz)).toLong

  def add(report: ResourceReport): Unit = synchronized {
    val key = (report.process, report.host)
    val all = reports.getOrElse(key, IndexedSeq.empty) ++ report.samples
    reports(key) = if (all.size <= ResourceLog.MostSamples) all else all.indices.by(2).map(all)
    costs(key) = costs.getOrElse(key, SamplerCost.Zero) + report.cost
    toldAt(key) = nanoTime()
  }

  /**
   * What all processes use now, as far as they have told; None before the first has. One that has been silent for several reports, as a lost
   * executor is, uses nothing any more.
   */
  def latest: Option[ResourceUse] = synchronized {
    val now = nanoTime()
    val last = reports.toSeq.collect {
      case (key, samples) if samples.nonEmpty && now - toldAt(key) <= liveNanos => samples.takeRight(2)
    }
    if (last.isEmpty) None
    else
      Some(
        ResourceUse(
          last.map(ResourceLog.rates(_).last).sum,
          last.map(_.last.residentBytes).filter(_ >= 0).sum,
          last.size
        )
      )
  }

  /**
   * As resources.json holds it: for each process one list a quantity, all of one length, and what sampling it took.
   *
   * @param startMillis
   *   when the run began, since 1970
   */
  def toMap(startMillis: Long): ListMap[String, Any] = synchronized {
    ListMap[String, Any](
      "schema" -> 1,
      "hertz" -> hertz,
      "processes" -> reports.toSeq.map { case ((process, host), samples) =>
        described(process, host, samples.sortBy(_.millis), startMillis) ++ cost(costs((process, host)))
      }
    )
  }

  private def described(
      process: String,
      host: String,
      samples: IndexedSeq[ResourceSample],
      startMillis: Long
  ): ListMap[String, Any] = {
    val first = samples.head
    ListMap[String, Any](
      "process" -> process,
      "host" -> host,
      "seconds" -> samples.map(sample => (sample.millis - startMillis) / 1e3),
      "cpu_cores" -> ResourceLog.rates(samples),
      "resident_bytes" -> samples.map(_.residentBytes),
      "heap_bytes" -> samples.map(_.heapBytes),
      "direct_bytes" -> samples.map(_.directBytes),
      "gc_ms" -> samples.map(_.gcMillis - first.gcMillis),
      "disk_read_bytes" -> samples.map(_.readBytes - first.readBytes),
      "disk_written_bytes" -> samples.map(_.writtenBytes - first.writtenBytes),
      "network" -> ListMap(first.network.toSeq.sortBy(_._1).map { case (name, (received, sent)) =>
        val counts = samples.map(_.network.getOrElse(name, (received, sent)))
        name -> ListMap(
          "received_bytes" -> counts.map(_._1 - received),
          "sent_bytes" -> counts.map(_._2 - sent)
        )
      }: _*)
    ) ++ gpus(samples)
  }

  private def cost(of: SamplerCost): ListMap[String, Any] = ListMap[String, Any](
    "sampler_cpu_seconds" -> (if (of.cpuNanos < 0) -1.0 else of.cpuNanos / 1e9),
    "sampler_seconds" -> of.nanos / 1e9
  )

  /** Nothing where no GPU was seen; -1 where one was not seen yet. */
  private def gpus(samples: IndexedSeq[ResourceSample]): ListMap[String, Any] = {
    val indices = samples.flatMap(_.gpus.keys).distinct.sortBy(_.toInt)
    val found = indices.map { index =>
      val seen = samples.map(_.gpus.getOrElse(index, GpuSample(-1, -1)))
      index -> ListMap[String, Any]("use" -> seen.map(_.use), "memory_bytes" -> seen.map(_.memoryBytes))
    }
    if (found.isEmpty) ListMap.empty else ListMap("gpus" -> ListMap(found: _*))
  }
}

object ResourceLog {

  /** Of a process; where a long run has more, every second one is dropped, again and again. */
  val MostSamples = 4000
  private val logs = new ConcurrentHashMap[String, ResourceLog]()

  /** Reports that a process may miss, in a long collection of garbage for one, and still be there. */
  private val LivePeriods = 3

  /** The run's log, made where there is none. @param hertz samples a second of each process */
  def open(runId: String, hertz: Double): ResourceLog = logs.computeIfAbsent(runId, _ => new ResourceLog(hertz))

  /** None where the run does not go on, or is not sampled. */
  def latest(runId: String): Option[ResourceUse] = Option(logs.get(runId)).flatMap(_.latest)

  /** Samples of runs that have ended are dropped. */
  def deliver(report: ResourceReport): Unit = Option(logs.get(report.runId)).foreach(_.add(report))

  def close(runId: String): Unit = {
    logs.remove(runId)
    ()
  }

  /** Cores in use since the sample before; the first one's are its successor's. */
  private[metrics] def rates(samples: IndexedSeq[ResourceSample]): Seq[Double] = {
    val between = samples.zip(samples.drop(1)).map { case (one, next) =>
      val millis = math.max(1L, next.millis - one.millis)
      math.rint((next.cpuNanos - one.cpuNanos) / 1e6 / millis * 1000) / 1000
    }
    between.headOption.getOrElse(0.0) +: between
  }
}
