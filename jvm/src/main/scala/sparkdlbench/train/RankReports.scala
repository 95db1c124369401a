package sparkdlbench.train

import sparkdlbench.engine.Evaluation
import sparkdlbench.transport.RankGroups

import java.util.concurrent.{ConcurrentHashMap, LinkedBlockingQueue}

/** What a rank of a one-stage run tells the driver while it trains. Their number does not grow with the steps. */
sealed trait RankReport extends Serializable {
  def runId: String
  def attempt: Int
}

/** At most once a second, from rank 0. */
final case class StepReport(
    runId: String,
    attempt: Int,
    step: Long,
    loss: Double,
    rowsPerSecond: Double,
    status: RankStatus
) extends RankReport

/**
 * When an attempt begins, from rank 0.
 *
 * @param groups
 *   the ranks that sum in memory first
 * @param placed
 *   the ranks that share a process now
 * @param before
 *   the groups of the checkpoint that the attempt goes on from
 * @param from
 *   steps made when it begins
 */
final case class GroupsReport(
    runId: String,
    attempt: Int,
    groups: RankGroups,
    placed: RankGroups,
    before: Option[RankGroups],
    from: Long
) extends RankReport

/**
 * While an attempt begins, from every rank.
 *
 * @param doing
 *   what the rank begins with now, for messages
 */
final case class StartReport(runId: String, attempt: Int, rank: Int, place: String, doing: String) extends RankReport

/** When rank 0 begins an evaluation that may take a while; at most once a second. */
final case class DoingReport(runId: String, attempt: Int, doing: String) extends RankReport

/**
 * At the end of an epoch, from every rank.
 *
 * @param ranks
 *   how many ranks report
 * @param workers
 *   how many of them compute: the first ones
 * @param seconds
 *   what the rank measured, from the end of the epoch before
 * @param lossSum
 *   of the epoch's rows that were the rank's
 * @param lastLossSum
 *   of those in its last step
 * @param bytesRead
 *   of a sharded set, since the report before
 * @param isLast
 *   whether no epoch follows it
 */
final case class EpochReport(
    runId: String,
    attempt: Int,
    rank: Int,
    ranks: Int,
    workers: Int,
    epoch: Int,
    seconds: EpochSeconds,
    lossSum: Double,
    lastLossSum: Double,
    bytesRead: Long,
    evaluation: Option[Evaluation],
    status: RankStatus,
    isLast: Boolean
) extends RankReport

/**
 * From a rank whose loss is not finite, before it ends.
 *
 * @param step
 *   from 0
 * @param text
 *   the whole message
 */
final case class DivergedReport(runId: String, attempt: Int, step: Long, text: String) extends RankReport

/**
 * From every rank of an attempt that ends at a checkpoint, once its part of that is written.
 *
 * @param ranks
 *   how many ranks tell it
 * @param step
 *   steps made
 */
final case class LeftReport(runId: String, attempt: Int, rank: Int, ranks: Int, step: Long) extends RankReport

/** The driver's letter boxes for reports, one a run; the plugin's RPC end delivers here. */
object RankReports {
  private val boxes = new ConcurrentHashMap[String, LinkedBlockingQueue[RankReport]]()

  def open(runId: String): LinkedBlockingQueue[RankReport] =
    boxes.computeIfAbsent(runId, _ => new LinkedBlockingQueue[RankReport]())

  /** False when nobody waits for reports of that run (it has ended). */
  def deliver(report: RankReport): Boolean = Option(boxes.get(report.runId)).exists(_.offer(report))

  def close(runId: String): Unit = {
    boxes.remove(runId)
    ()
  }
}
