package sparkdlbench.bench

import org.apache.hadoop.fs.Path
import org.apache.spark.{SparkContext, SparkEnv}
import org.apache.spark.util.SerializableConfiguration
import sparkdlbench.common.Json
import sparkdlbench.config.{RunKeys, Settings, Variants}
import sparkdlbench.data.{DataFacts, DataSource, LoadedRows}

import java.lang.management.{ManagementFactory, MemoryType}
import scala.jdk.CollectionConverters._
import scala.reflect.ClassTag

/**
 * Loads a data set into all executors of a session, as a run does before its first step: prepares it (decoding it anew each time,
 * where the source decodes once for all), then opens it in each executor at the same time.
 */
object DataBench {

  /** What one executor holds. @param peakBytes heap at most since it was settled */
  private final case class Opened(rows: Int, checksum: Double, peakBytes: Long)

  /**
   * @param raw
   *   the run's keys; `workers` executors of one core each are taken to be there
   * @param memory
   *   whether the peak of the heap is taken, which costs a collection before each load; otherwise it is 0
   * @return
   *   JSON: `samples_ms` (from first touch until every executor has all rows), `prepare_ms`, `peak_bytes` of each sample (of
   *   the executor that needed most), `held_bytes`, `rows`
   */
  def run(sc: SparkContext, raw: Map[String, String], samples: Int, memory: Boolean): String = {
    val settings = RunKeys.resolve(raw)
    val source = Variants.find[DataSource]("data source", settings(RunKeys.data))
    val found = (0 until samples).map(_ => load(sc, source, settings, memory))
    Json.line(
      Json.fields(
        "samples_ms" -> found.map(_.millis),
        "prepare_ms" -> found.map(_.prepareMillis),
        "peak_bytes" -> found.map(_.peakBytes),
        "held_bytes" -> found.head.facts.heldBytes,
        "rows" -> (found.head.facts.trainRows + found.head.facts.testRows)
      )
    )
  }

  private final case class Load(millis: Double, prepareMillis: Double, peakBytes: Long, facts: DataFacts)

  private def load(sc: SparkContext, source: DataSource, settings: Settings, memory: Boolean): Load = {
    val executors = settings(RunKeys.workers)
    val before = if (memory) everywhere(sc, executors)(_ => Heap.settle()).toMap else Map.empty[String, Long]
    val start = System.nanoTime()
    val prepared = source.prepare(source.qualified(settings, sc.hadoopConfiguration), sc)
    val facts = source.inspect(prepared, sc.hadoopConfiguration)
    val between = System.nanoTime()
    val opened = open(sc, source.name, prepared, executors)
    val end = System.nanoTime()
    forget(sc, prepared)
    val rows = opened.map { case (_, found) => (found.rows, found.checksum) }.distinct
    require(rows.size == 1, s"executors hold different rows: $opened")
    require(rows.head._1 == facts.trainRows + facts.testRows, s"${rows.head._1} rows instead of $facts")
    val peaks = opened.map { case (id, found) => found.peakBytes - before.getOrElse(id, found.peakBytes) }
    Load((end - start) / 1e6, (between - start) / 1e6, peaks.max, facts)
  }

  private def open(sc: SparkContext, name: String, settings: Settings, executors: Int): Seq[(String, Opened)] = {
    val hadoop = new SerializableConfiguration(sc.hadoopConfiguration)
    everywhere(sc, executors) { _ =>
      val sets = Variants.find[DataSource]("data source", name).open(settings, hadoop.value)
      Opened(sets.train.rows + sets.test.rows, LoadedRows.checksum(sets), Heap.peak())
    }
  }

  /**
   * What each executor says, by its id: a barrier stage starts its tasks together, and with one core each there is one task in
   * each executor.
   */
  private def everywhere[T: ClassTag](sc: SparkContext, executors: Int)(body: Int => T): Seq[(String, T)] =
    sc.parallelize(0 until executors, executors)
      .barrier()
      .mapPartitions(ids => ids.map(id => (SparkEnv.get.executorId, body(id))))
      .collect()
      .toSeq

  /** So that the next sample decodes again. */
  private def forget(sc: SparkContext, settings: Settings): Unit = LoadedRows.decodedDir(settings).foreach { folder =>
    val path = new Path(folder)
    path.getFileSystem(sc.hadoopConfiguration).delete(path, true)
  }

  private object Heap {
    private def pools = ManagementFactory.getMemoryPoolMXBeans.asScala.filter(_.getType == MemoryType.HEAP)

    /** Heap in use after a collection, where the count of the peak begins. */
    def settle(): Long = {
      System.gc()
      pools.foreach(_.resetPeakUsage())
      pools.map(_.getUsage.getUsed).sum
    }

    /** Garbage included, and of each pool at its own moment: an upper bound. */
    def peak(): Long = pools.map(_.getPeakUsage.getUsed).sum
  }
}
