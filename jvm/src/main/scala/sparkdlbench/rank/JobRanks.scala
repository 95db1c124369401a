package sparkdlbench.rank

import org.apache.spark.SparkContext
import org.apache.spark.sparkdlbench.BlockStore
import sparkdlbench.metrics.ByteCounter

import java.util.concurrent.ExecutorService
import scala.reflect.ClassTag

/** Where a rank's state lives. */
final case class Placement(rank: Int, host: String, executorId: String)

/** One rank of a job-per-step run, as its exchange sees it in the executor that holds it. */
trait JobRank extends RankContext {
  def bytes: ByteCounter
  def host: String
  def executorId: String

  /** Spark's block manager in this executor. */
  def blocks: BlockStore

  /** Fetches blocks for the executor's ranks, so that a rank's fetches overlap. */
  def fetchers: ExecutorService

  /**
   * Keeps the exchange's own side of this rank from job to job, as long as the rank itself. One that an earlier attempt of the same task left,
   * before the first step, is closed.
   */
  def keep(side: RankSide): Unit

  /** The side that is kept. Fails where it is of another class. */
  def side[S <: RankSide](implicit kind: ClassTag[S]): S
}

/** What an exchange has at each rank. Each call comes from a task of the rank's executor, one at a time. */
trait RankSide extends AutoCloseable {

  /**
   * Copies of what this rank answers for in a checkpoint: its shard's weights and optimiser, and what its codec left out. After
   * `Exchange.settle`.
   */
  def state: Seq[StateRange]

  /** Goes on from a checkpoint, which any number of ranks may have written; before the first step. */
  def restore(snapshot: Snapshot): Unit

  /** Removes what it has left in this executor, whatever became of the run. */
  override def close(): Unit = ()
}

/** Finds the ranks whose state the executor of a task holds. */
trait KeptRanks extends Serializable {

  /** Throws a RunFailedException where another executor holds it. */
  def apply(rank: Int): JobRank
}

/** The ranks of a job-per-step run, as its exchange sees them from the driver. */
trait JobRanks {
  def sc: SparkContext
  def setup: RunContext
  def placements: IndexedSeq[Placement]

  /** The preferred locations of each rank's tasks: the executor that holds its state. */
  def locations: IndexedSeq[Seq[String]]

  /** For the tasks of an exchange's own jobs. */
  def kept: KeptRanks

  /**
   * Runs `body` on every rank, each in the executor that holds it; returns the results by rank. The job's time is added to the phases: what
   * the slowest rank measured, and the rest of the job's wall clock as `scheduler`.
   */
  def run[T: ClassTag](body: JobRank => T): IndexedSeq[T]

  /**
   * Adds a job of an exchange's own to the phases.
   *
   * For the driver the slowest task of each stage counts. A rank has its own tasks' time, and waits for the slowest one of each
   * stage: so the rank that waits least is the one that the others wait for, as in the one-stage shape.
   *
   * @param wall
   *   its nanoseconds
   * @param atRanks
   *   what the tasks of each stage at the ranks measured, by rank
   * @param elsewhere
   *   the same of stages whose tasks are no rank's, and of the driver
   */
  def countJob(wall: Long, atRanks: Seq[Seq[Array[Long]]], elsewhere: Seq[Seq[Array[Long]]] = Nil): Unit
}
