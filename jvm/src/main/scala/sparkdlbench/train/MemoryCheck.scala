package sparkdlbench.train

import org.apache.spark.{SparkConf, SparkContext}
import org.apache.spark.sparkdlbench.SparkFacts
import sparkdlbench.common.{ConfigurationException, MemoryKind, MemoryPart}
import sparkdlbench.config.{Key, KeyGroup}
import sparkdlbench.data.{DataKeys, ExecutorHeap}

import java.lang.management.ManagementFactory
import scala.collection.immutable.ListMap
import scala.jdk.CollectionConverters._

/**
 * The session's limits, bytes.
 *
 * @param direct
 *   of direct buffers; HotSpot's default is the size of the heap
 * @param overhead
 *   of all that is not heap, where something enforces it (YARN, Kubernetes)
 * @param driverHeap
 *   None where the driver is the executor
 * @param driverDirect
 *   of the driver's direct buffers; None where the driver is the executor
 * @param result
 *   of a job's result; 0: none
 */
final case class MemoryLimits(
    heap: Long,
    direct: Long,
    overhead: Option[Long],
    driverHeap: Option[Long],
    driverDirect: Option[Long],
    result: Long
) {
  def toMap: ListMap[String, Any] = ListMap(
    "executor_heap_bytes" -> heap,
    "executor_direct_bytes" -> direct,
    "executor_overhead_bytes" -> overhead,
    "driver_heap_bytes" -> driverHeap.getOrElse(heap),
    "driver_direct_bytes" -> driverDirect.getOrElse(direct),
    "driver_max_result_bytes" -> result
  )
}

object MemoryLimits {
  private val Mebi = 1L << 20
  private val DirectOption = """-XX:MaxDirectMemorySize=(\d+)([kKmMgGtT]?)""".r
  private val LeastOverhead = 384L

  def of(sc: SparkContext): MemoryLimits = {
    val conf = sc.getConf
    val result = conf.getSizeAsBytes("spark.driver.maxResultSize", "1g")
    val own = Runtime.getRuntime.maxMemory
    val ownDirect = directOf(ManagementFactory.getRuntimeMXBean.getInputArguments.asScala.mkString(" "), own)
    if (sc.isLocal) {
      MemoryLimits(own, ownDirect, None, None, None, result)
    } else {
      val heap = ExecutorHeap.of(conf)
      val options =
        Seq("spark.executor.defaultJavaOptions", "spark.executor.extraJavaOptions").map(conf.get(_, "")).mkString(" ")
      val overhead = overheadOf(sc.master, conf, heap)
      MemoryLimits(heap, directOf(options, heap), overhead, Some(own), Some(ownDirect), result)
    }
  }

  /** The last of several wins, as in the JVM. */
  private[train] def directOf(options: String, default: Long): Long =
    DirectOption
      .findAllMatchIn(options)
      .toSeq
      .lastOption
      .map { found =>
        val shift = Map("" -> 0, "k" -> 10, "m" -> 20, "g" -> 30, "t" -> 40)
        found.group(1).toLong << shift(found.group(2).toLowerCase)
      }
      .filter(_ > 0)
      .getOrElse(default)

  private[train] def overheadOf(master: String, conf: SparkConf, heap: Long): Option[Long] =
    if (!master.startsWith("yarn") && !master.startsWith("k8s")) None
    else {
      val share = conf.getDouble("spark.executor.memoryOverheadFactor", 0.1)
      val default = math.max(LeastOverhead, (heap * share / Mebi).toLong)
      Some(conf.getSizeAsMb("spark.executor.memoryOverhead", s"${default}m") * Mebi)
    }
}

/** Compares what a run needs with what the session has, before any Spark job. */
object MemoryCheck {
  val mode: Key[String] = Key.choice(
    "memory_check",
    "on",
    Seq("on", "off"),
    "Refuse a run whose estimated memory does not fit the session's limits (on), or only write the estimate into run.json (off)"
  )
  val keys: Seq[Key[_]] = Seq(mode)

  /** Most workers of an executor, if Spark spreads them evenly. */
  def workersPerExecutor(sc: SparkContext, workers: Int): Int = {
    val executors = math.max(1, SparkFacts.executors(sc))
    (workers + executors - 1) / executors
  }

  /** A run's estimate beside the session's limits, held against them as `check` does. */
  private[sparkdlbench] def estimated(sc: SparkContext, setup: RunSetup): ListMap[String, Any] = {
    val estimate = MemoryEstimate.of(setup, workersPerExecutor(sc, setup.ranks))
    val limits = MemoryLimits.of(sc)
    check(setup, estimate, limits, sc.isLocal)
    estimate.toMap + ("limits" -> limits.toMap)
  }

  /** Throws a ConfigurationException that says what is needed, what is there, and what to set to which value. */
  def check(setup: RunSetup, estimate: MemoryEstimate, limits: MemoryLimits, local: Boolean): Unit =
    if (setup.settings(mode) == "on") {
      val complaints = heap(setup, estimate, limits, local) ++ direct(estimate, limits, local) ++
        overhead(estimate, limits) ++ driver(estimate, limits)
      if (complaints.nonEmpty)
        throw new ConfigurationException(
          s"A run with the model ${setup.spec.name} of ${setup.spec.parameterCount} parameters does not fit the session's memory. " +
            s"${complaints.mkString(" ")} Or train a smaller model, lower batch, or spread the workers over more executors. The numbers are " +
            "estimates; memory_check=off starts the run nevertheless."
        )
    }

  private def heap(
      setup: RunSetup,
      estimate: MemoryEstimate,
      limits: MemoryLimits,
      local: Boolean
  ): Option[String] = {
    val needed = estimate.executorHeap + (if (local) estimate.driverHeap - MemoryEstimate.SparkHeapBytes else 0)
    val key = if (local) "spark.driver.memory" else "spark.executor.memory"
    val whose = if (local) "The driver, where the workers run," else each(estimate)
    val parts = estimate.executorParts(MemoryKind.Heap)
    if (needed <= limits.heap) None
    else
      Some(
        s"$whose needs about ${size(needed)} of heap (${largest(parts)}) and has ${size(limits.heap)}: set $key=${setting(needed)}" +
          s"${mapping(setup, parts)}."
      )
  }

  /** The remedy where the decoded rows take more of the heap than anything else, and could lie on disk. */
  private def mapping(setup: RunSetup, parts: Seq[MemoryPart]): String = {
    val key = DataKeys.memoryLimit
    val (held, rows) = (setup.data.heldBytes, setup.data.trainRows.toLong + setup.data.testRows)
    val isLargest = parts.maxBy(_.bytes).name == MemoryEstimate.DataSet
    // Of rows that are mapped already the labels alone are held.
    val couldBe = setup.dataSource.keys.exists(_.name == key.name) && held > rows * LabelBytes
    if (!isLargest || !couldBe) ""
    else
      s", or ${key.name}=${held / 2} (below the $held bytes that the decoded rows take; now ${setup.settings.entries.getOrElse(key.name, key.default)}), with " +
        "which they are mapped from a file on the executor's local disk"
  }

  private def direct(estimate: MemoryEstimate, limits: MemoryLimits, local: Boolean): Option[String] = {
    val needed = estimate.executorDirect + (if (local) estimate.driverDirect else 0)
    val key = if (local) "spark.driver.extraJavaOptions" else "spark.executor.extraJavaOptions"
    val whose = if (local) "The driver, where the workers run," else each(estimate)
    if (needed <= limits.direct) None
    else
      Some(
        s"$whose needs about ${size(needed)} of direct memory (a worker's ${largest(estimate.worker.filter(_.kind == MemoryKind.Direct))}) and may take ${size(limits.direct)}: add " +
          s"-XX:MaxDirectMemorySize=${setting(needed)} to $key (without that option the limit is the size of the heap)."
      )
  }

  private def overhead(estimate: MemoryEstimate, limits: MemoryLimits): Option[String] =
    limits.overhead.filter(estimate.executorOffHeap > _).map { limit =>
      s"${each(estimate)} needs about ${size(estimate.executorOffHeap)} outside the heap, and its container leaves ${size(limit)} for that: set " +
        s"spark.executor.memoryOverhead=${setting(estimate.executorOffHeap)}."
    }

  private def driver(estimate: MemoryEstimate, limits: MemoryLimits): Seq[String] = {
    val heap = limits.driverHeap.filter(estimate.driverHeap > _).map { limit =>
      s"The driver needs about ${size(estimate.driverHeap)} of heap (${largest(estimate.driver.filter(_.kind == MemoryKind.Heap))}) and has ${size(limit)}: set " +
        s"spark.driver.memory=${setting(estimate.driverHeap)}."
    }
    val direct = limits.driverDirect.filter(estimate.driverDirect > _).map { limit =>
      s"The driver needs about ${size(estimate.driverDirect)} of direct memory and may take ${size(limit)}: add " +
        s"-XX:MaxDirectMemorySize=${setting(estimate.driverDirect)} to spark.driver.extraJavaOptions."
    }
    val result =
      if (limits.result == 0 || estimate.result <= limits.result) None
      else
        Some(
          s"What ranks send to the driver at once, the trained weights at least, is ${size(estimate.result)}, and Spark's limit of a job's result is " +
            s"${size(limits.result)}: set spark.driver.maxResultSize=${setting(estimate.result)}."
        )
    heap.toSeq ++ direct ++ result
  }

  private def each(estimate: MemoryEstimate): String =
    s"Each executor, with ${estimate.workersPerExecutor} worker${if (estimate.workersPerExecutor == 1) "" else "s"},"

  private def largest(parts: Seq[MemoryPart]): String = parts
    .filter(_.bytes > 0)
    .sortBy(-_.bytes)
    .take(3)
    .map(part => s"${part.name} ${size(part.bytes)}")
    .mkString("largest: ", ", ", "")

  private val LabelBytes = 4L

  private[train] def size(bytes: Long): String =
    if (bytes >= (1L << 30)) "%.1f GiB".formatLocal(java.util.Locale.ROOT, bytes.toDouble / (1L << 30))
    else s"${(bytes + (1L << 20) - 1) >> 20} MiB"

  /** A tenth more than is needed, rounded up to 256 MiB, as Spark and the JVM read it. */
  private def setting(bytes: Long): String = {
    val quarters = ((bytes * 1.1).toLong >> 28) + 1
    if (quarters % 4 == 0) s"${quarters / 4}g" else s"${quarters * 256}m"
  }
}

final class MemoryKeys extends KeyGroup {
  def keys: Seq[Key[_]] = MemoryCheck.keys
}
