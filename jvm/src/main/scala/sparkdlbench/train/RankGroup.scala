package sparkdlbench.train

import org.apache.spark.broadcast.Broadcast
import org.apache.spark.rdd.RDD
import org.apache.spark.sparkdlbench.SparkFacts
import org.apache.spark.{Partition, SparkContext, SparkEnv, TaskContext}
import sparkdlbench.common.RunFailedException
import sparkdlbench.config.CheckpointKeys
import sparkdlbench.metrics.{Phase, StepPhases}
import sparkdlbench.rank.{JobRank, JobRanks, KeptRanks, Placement, RunSubmission}

import scala.reflect.ClassTag
import scala.util.{Failure, Success, Try}
import scala.util.control.NonFatal

/**
 * The ranks of a job-per-step run, seen from the driver. A Spark job runs a function on every rank's state, each in the
 * executor that holds it.
 *
 * @param placing
 *   watches the group's first job, which takes its slots
 * @param look
 *   called twice a second, from a thread that does nothing else
 */
final class RankGroup private[train] (
    val sc: SparkContext,
    val setup: RunSetup,
    placing: WatchedJob,
    look: () => Unit
) extends JobRanks
    with AutoCloseable {

  def this(sc: SparkContext, setup: RunSetup) = this(sc, setup, new WatchedJob(sc, setup), () => ())

  private val critical = new Array[Long](Phase.names.size)
  private val ofRanks = IndexedSeq.fill(setup.workers)(new Array[Long](Phase.names.size))

  /** Made by one barrier stage, so that all ranks exist at once and each slot takes one. */
  val placements: IndexedSeq[Placement] = place()
  private val pinned = new PinnedRanks(sc, placements)
  private val watch = new ExecutorWatch(
    setup.runId,
    setup.settings(CheckpointKeys.replacementSeconds),
    () => SparkFacts.slots(sc),
    () => sc.cancelJobGroup(setup.runId),
    look
  )

  def run[T: ClassTag](body: JobRank => T): IndexedSeq[T] = states(body)

  /** As `run`, with all that a rank has. */
  def states[T: ClassTag](body: RankState => T): IndexedSeq[T] = {
    val start = System.nanoTime()
    val submitted = setup.submitted
    val results = new Array[(T, Array[Long])](setup.workers)
    sc.runJob(
      pinned,
      (task: TaskContext, _: Iterator[Int]) => {
        val state = ExecutorRuns.rank(submitted, task.partitionId())
        state.timer.restart(Phase.Data)
        // A job that Spark has given up leaves its tasks running: nobody may close the state under them.
        state.synchronized {
          val result = body(state)
          (result, state.timer.take())
        }
      },
      placements.indices,
      (rank: Int, result: (T, Array[Long])) => results(rank) = result
    )
    countJob(System.nanoTime() - start, Seq(results.map(_._2).toSeq), Nil)
    results.toIndexedSeq.map(_._1)
  }

  def kept: KeptRanks = KeptHere(setup.submitted)
  def locations: IndexedSeq[Seq[String]] = placements.map(RankGroup.location)

  def countJob(wall: Long, atRanks: Seq[Seq[Array[Long]]], elsewhere: Seq[Seq[Array[Long]]]): Unit = {
    val slowest = (atRanks ++ elsewhere).map(_.maxBy(_.sum))
    val scheduler = math.max(0L, wall - slowest.map(_.sum).sum)
    slowest.foreach(RankGroup.add(_, critical))
    critical(Phase.Scheduler) += scheduler
    ofRanks.zipWithIndex.foreach { case (phases, rank) =>
      val own = atRanks.flatMap(_.lift(rank))
      own.foreach(RankGroup.add(_, phases))
      phases(Phase.Wait) += slowest.map(_.sum).sum - own.map(_.sum).sum
      phases(Phase.Scheduler) += scheduler
    }
  }

  /** Exposed nanoseconds by phase since the last call. */
  def takePhases(): StepPhases = {
    val taken = StepPhases(critical.clone(), ofRanks.map(_.clone()))
    (critical +: ofRanks).foreach(java.util.Arrays.fill(_, 0L))
    taken
  }

  private def place(): IndexedSeq[Placement] = {
    val shipped = sc.broadcast(setup)
    try watched(made(shipped)).sortBy(_.rank).toIndexedSeq
    catch {
      case cause: Throwable =>
        forget() // those that were made
        throw cause
    } finally Try(shipped.unpersist())
  }

  /** The group's first job, ended where it does not get its slots. */
  private def watched[T](job: => T): T =
    placing.run(job, () => Thread.sleep(RankGroup.LookMillis), () => false) match {
      case Success(done) => done
      case Failure(cause) => throw placing.complaint.fold(cause)(new RunFailedException(_, cause))
    }

  /** In every executor that takes one of the tasks, as far as Spark still can. */
  private def forget(): Unit = {
    val submitted = setup.submitted
    try {
      val slots = if (sc.isStopped) 0 else SparkFacts.slots(sc)
      if (slots > 0) sc.parallelize(0 until slots, slots).foreach(_ => ExecutorRuns.close(submitted))
    } catch { case NonFatal(_) => () } // what made them fail is what the user must know
  }

  private def made(shipped: Broadcast[RunSetup]): Array[Placement] =
    sc
      .parallelize(0 until setup.workers, setup.workers)
      .barrier()
      .mapPartitions { _ =>
        // Not BarrierTaskContext.get: on Spark 3.5 that starts a thread which keeps the JVM of a local master from ending.
        val rank = TaskContext.getPartitionId()
        ExecutorRuns.closeEarlier(shipped.value.submitted)
        ExecutorRuns.acquire(shipped.value).keep(rank)
        val env = SparkEnv.get
        Iterator(Placement(rank, env.blockManager.blockManagerId.host, env.executorId))
      }
      .collect()

  /** Whether the group's jobs were ended here, since there is no executor. */
  def isEnded: Boolean = watch.complaint.nonEmpty

  /** What is to be told of a failure: where the group's jobs were ended here, why. */
  def explained(cause: Throwable): Throwable = watch.complaint.fold(cause)(new RunFailedException(_, cause))

  /** Drops what the executors hold of the run. An executor that is gone has dropped it already. */
  override def close(): Unit = {
    val submitted = setup.submitted
    try
      if (!sc.isStopped && SparkFacts.slots(sc) > 0) {
        val there = SparkFacts.living(sc)
        val ranks = placements.filter(at => there(at.executorId)).map(_.rank)
        sc.runJob(pinned, (_: Iterator[Int]) => ExecutorRuns.close(submitted), ranks)
        ()
      }
    finally watch.close()
  }
}

private object RankGroup {
  private def add(phases: Array[Long], to: Array[Long]): Unit =
    phases.indices.foreach(phase => to(phase) += phases(phase))

  val LookMillis = 20L
  def location(placed: Placement): Seq[String] = Seq(SparkFacts.executorLocation(placed.host, placed.executorId))
}

/** One partition a rank, each preferring the executor that holds the rank's state. */
private final class PinnedRanks(sc: SparkContext, placements: IndexedSeq[Placement]) extends RDD[Int](sc, Nil) {
  override protected def getPartitions: Array[Partition] =
    placements.map(placed => new RankPartition(placed.rank): Partition).toArray
  override def compute(split: Partition, context: TaskContext): Iterator[Int] = Iterator.single(split.index)
  override protected def getPreferredLocations(split: Partition): Seq[String] =
    RankGroup.location(placements(split.index))
}

private final class RankPartition(val index: Int) extends Partition

private final case class KeptHere(submitted: RunSubmission) extends KeptRanks {
  override def apply(rank: Int): JobRank = ExecutorRuns.rank(submitted, rank)
}
