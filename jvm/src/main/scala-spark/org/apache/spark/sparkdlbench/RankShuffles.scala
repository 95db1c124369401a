package org.apache.spark.sparkdlbench

import org.apache.spark.rdd.RDD
import org.apache.spark.util.ThreadUtils
import org.apache.spark.{
  MapOutputTrackerMaster,
  Partition,
  Partitioner,
  ShuffleDependency,
  SparkContext,
  SparkEnv,
  TaskContext
}

import scala.concurrent.duration.Duration

/** What the tasks of one stage do. */
trait StageWork extends Serializable {

  /**
   * @param task
   *   number of the task in its stage
   * @param input
   *   the records that the stage before sent to this task, as they arrive; nothing is fetched before the first is asked for
   * @return
   *   (number of the receiving task, record)
   */
  def run(task: Int, input: Iterator[Array[Byte]]): Iterator[(Int, Array[Byte])]
}

/** The records that one stage sends to the tasks of the next, through the session's shuffle manager. */
final class RankShuffle private[sparkdlbench] (
    private[sparkdlbench] val dependency: ShuffleDependency[Int, Array[Byte], Array[Byte]],
    private[sparkdlbench] val stage: StageRdd
) {
  def id: Int = dependency.shuffleId
}

/** Spark shuffles whose tasks choose where they run, made and removed one by one. Driver side. */
final class RankShuffles(sc: SparkContext) {
  private var removed = 0L

  /**
   * A shuffle that is not written yet.
   *
   * @param locations
   *   one task for each: the preferred locations (`SparkFacts.executorLocation`), Nil for anywhere
   * @param input
   *   the shuffle that the tasks read
   * @param receivers
   *   tasks of the stage that will read this one
   */
  def plan(locations: Seq[Seq[String]], input: Option[RankShuffle], receivers: Int, work: StageWork): RankShuffle = {
    val stage = new StageRdd(sc, locations.toIndexedSeq, input.map(_.dependency), work)
    val serializer = new RankRecordSerializer
    new RankShuffle(
      new ShuffleDependency[Int, Array[Byte], Array[Byte]](stage, new ByNumber(receivers), serializer),
      stage
    )
  }

  /** One Spark job that ends when `shuffle` is written, and so all shuffles that it reads. Nothing comes back to the driver. */
  def write(shuffle: RankShuffle): Unit = {
    val job = sc.submitMapStage(shuffle.dependency)
    // The job's tasks have bounded waits, and cancelling ends it; so does the group's watch where there is no executor for them.
    ThreadUtils.awaitReady(job, Duration.Inf)
    job.value.get.get // not `job.get`, which hides the reason behind an exception of its own
    ()
  }

  /** One Spark job whose last stage hands its records to the driver: by task, (receiver, record) in the order written. */
  def collect(
      locations: Seq[Seq[String]],
      input: Option[RankShuffle],
      work: StageWork
  ): IndexedSeq[Array[(Int, Array[Byte])]] = {
    val stage = new StageRdd(sc, locations.toIndexedSeq, input.map(_.dependency), work)
    try sc.runJob(stage, (records: Iterator[(Int, Array[Byte])]) => records.toArray).toIndexedSeq
    finally stage.clearDependencies()
  }

  /** Cuts the lineage behind a written shuffle, so that steps do not hang on each other. */
  def cut(shuffle: RankShuffle): Unit = shuffle.stage.clearDependencies()

  /**
   * Removes what a shuffle has left anywhere: ids and map-output entries at once, files by a message to the executors, whose
   * answer is waited for now and then only, so that steps do not wait and files do not pile up.
   */
  def remove(shuffle: RankShuffle): Unit = {
    cut(shuffle)
    removed += 1
    val wait = removed % RankShuffles.RemovalsAtOnce == 0
    sc.cleaner match {
      case Some(cleaner) => cleaner.doCleanupShuffle(shuffle.id, blocking = wait)
      case None => // spark.cleaner.referenceTracking=false
        SparkEnv.get.mapOutputTracker.asInstanceOf[MapOutputTrackerMaster].unregisterShuffle(shuffle.id)
        sc.shuffleDriverComponents.removeShuffle(shuffle.id, wait)
    }
  }
}

object RankShuffles {

  /** Shuffles whose files may be on their way out at the same time. */
  val RemovalsAtOnce = 8

  /** Bytes that a record takes in a shuffle beside its own, before compression. */
  val Framing: Int = RankRecordSerializer.Framing
}

private final class ByNumber(val numPartitions: Int) extends Partitioner {
  def getPartition(key: Any): Int = key.asInstanceOf[Int]
  override def equals(other: Any): Boolean = other match {
    case that: ByNumber => that.numPartitions == numPartitions
    case _ => false
  }
  override def hashCode: Int = numPartitions
}

/**
 * One stage: each task reads its part of `input` and does `work`. Where a task prefers a place, Spark's own preference for
 * the executors that hold the most map output does not count.
 */
private[sparkdlbench] final class StageRdd(
    sc: SparkContext,
    locations: IndexedSeq[Seq[String]],
    @transient private var input: Option[ShuffleDependency[Int, Array[Byte], Array[Byte]]],
    work: StageWork
) extends RDD[(Int, Array[Byte])](sc, Nil) {

  override protected def getDependencies: Seq[ShuffleDependency[Int, Array[Byte], Array[Byte]]] = input.toList
  override protected def getPartitions: Array[Partition] =
    locations.indices.map(new NumberedPartition(_): Partition).toArray
  override protected def getPreferredLocations(split: Partition): Seq[String] = locations(split.index)

  override def compute(split: Partition, context: TaskContext): Iterator[(Int, Array[Byte])] =
    work.run(split.index, new OnDemand(() => read(split.index, context)))

  override def clearDependencies(): Unit = {
    super.clearDependencies()
    input = None
  }

  private def read(task: Int, context: TaskContext): Iterator[Array[Byte]] = dependencies.headOption match {
    case Some(dependency: ShuffleDependency[_, _, _]) =>
      val metrics = context.taskMetrics().createTempShuffleReadMetrics()
      SparkEnv.get.shuffleManager
        .getReader[Int, Array[Byte]](dependency.shuffleHandle, task, task + 1, context, metrics)
        .read()
        .map(_._2)
    case _ => Iterator.empty
  }
}

private final class NumberedPartition(val index: Int) extends Partition

private final class OnDemand(open: () => Iterator[Array[Byte]]) extends Iterator[Array[Byte]] {
  private lazy val records = open()
  def hasNext: Boolean = records.hasNext
  def next(): Array[Byte] = records.next()
}
