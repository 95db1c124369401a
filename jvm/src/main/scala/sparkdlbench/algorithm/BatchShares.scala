package sparkdlbench.algorithm

import sparkdlbench.collective.NumberSums
import sparkdlbench.config.{Key, RunKeys, Settings, Variants}
import sparkdlbench.data.{BatchPlan, Shares}
import sparkdlbench.rank.RankContext
import sparkdlbench.topology.JobTransport
import sparkdlbench.transport.TransportVariant

/**
 * Shares of the global batch by speed, for workers that are not alike (as in Chen et al., "Fast distributed deep learning via worker-adaptive
 * batch sizing", SoCC 2018): every so many steps all ranks tell each other how many rows a second they have computed, and deal out the
 * next steps so that all are done at about the same time. Gradients are sums over rows, divided by the rows of the whole batch, so a
 * step's gradient is what it would be with even shares, up to rounding. Shares depend on time, so the same seed need not give
 * the same bits.
 *
 * Costs 8 bytes a worker from each rank to rank 0 and back each time (`NumberSums`), and memory for up to twice an even share. Batch
 * normalisation over all workers' rows is refused with it (`train/Combination`): each worker waits for the slowest in the middle of its pass.
 */
object BatchShares {
  val kind: Key[String] = Key.choice(
    "batch_shares.by",
    "even",
    Seq("even", "speed"),
    "How a step's rows are dealt out to the workers: as many to each, or by their measured speed (sync-sgd)"
  )
  val every: Key[Int] =
    Key.int(
      "batch_shares.every",
      "50",
      1,
      "Steps between two measurements of the workers' speeds (batch_shares.by = speed)"
    )

  private val MostTimesEven = 2

  private[algorithm] def bySpeed(settings: Settings): Boolean = settings(kind) == "speed"

  private[algorithm] def rowsAtOnce(settings: Settings, plan: BatchPlan): Int =
    if (bySpeed(settings)) math.min(MostTimesEven.toLong * plan.maxShare, math.min(plan.batch, plan.rows).toLong).toInt
    else plan.maxShare

  private[algorithm] def refuses(settings: Settings): Option[String] = {
    def refused(why: String, remedy: String) = Some(
      s"batch_shares.by = speed changes the workers' shares between steps, and $why. $remedy"
    )
    if (!bySpeed(settings)) None
    else if (settings(BackupWorkers.count) > 0)
      refused("backup_workers scales sums by even shares", "Use one of the two.")
    else
      Variants.find[TransportVariant]("transport", settings(RunKeys.transport)) match {
        case transport: JobTransport =>
          refused(
            s"with transport ${transport.name}, which makes a Spark job per step, the workers have nothing to agree on them by",
            "Use a transport of the one-stage shape, such as block-stream, or batch_shares.by = even."
          )
        case _ => None
      }
  }
}

/** One worker's side. @param sums of as many numbers as there are workers */
private[algorithm] final class SpeedShares(rank: RankContext, sums: NumberSums, every: Int) {
  private var steps = 0
  private var rows, nanos = 0L

  /** Rows of a whole batch that each rank gets now. */
  def dealt: Seq[Long] = {
    val own = new Array[Long](rank.setup.workers)
    if (rank.computes) own(rank.rank) = rank.rows(0).toLong
    own.toSeq
  }

  /** Computes this rank's rows of a step, and how long that takes; a collective call every so many steps. */
  def timed(step: Long)(compute: => Double): Double = {
    if (steps == every) agree()
    val start = System.nanoTime()
    val loss = compute
    nanos += System.nanoTime() - start
    rows += rank.rows(step)
    steps += 1
    loss
  }

  private def agree(): Unit = {
    val speeds = new Array[Double](rank.setup.workers)
    if (rank.computes) speeds(rank.rank) = rows * 1e9 / math.max(1L, nanos)
    sums.sum(speeds)
    if (speeds.forall(_ > 0))
      rank.deal(Shares.bySpeed(speeds.toIndexedSeq, rank.plan.batchRows(0), rank.setup.rowsAtOnce))
    steps = 0
    rows = 0
    nanos = 0
  }
}
