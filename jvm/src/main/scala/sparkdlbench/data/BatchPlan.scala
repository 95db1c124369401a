package sparkdlbench.data

import sparkdlbench.common.ConfigurationException
import sparkdlbench.vector.Slices

/**
 * Which rows of an epoch's order belong to which step and rank. Step s takes the positions s × batch until
 * min(rows, (s + 1) × batch); rank r gets a contiguous share of them that differs from the others' by at most one row.
 * Nothing needs to divide by anything; in the last step of an epoch a rank may have no row at all. Ranks after the last
 * worker's have none ever.
 *
 * @param rows
 *   training rows, at least 1
 * @param batch
 *   rows per step over all workers, at least `workers`
 */
final case class BatchPlan(rows: Int, batch: Int, workers: Int) {
  if (rows < 1) throw new ConfigurationException(s"The training set has $rows rows; it needs at least 1.")
  if (workers < 1) throw new ConfigurationException(s"The run has $workers workers; it needs at least 1.")
  if (batch < workers)
    throw new ConfigurationException(
      s"The global batch of $batch rows is smaller than the number of workers, $workers: some worker would never " +
        "have a row. " +
        s"Set `batch` to $workers or more, or `workers` to $batch or less."
    )

  def stepsPerEpoch: Int = ((rows.toLong + batch - 1) / batch).toInt

  /** Rows of the global batch of step `step` of an epoch: `batch`, or fewer in the last step. */
  def batchRows(step: Int): Int = math.min(batch, rows - start(step))

  /** Positions [from, until) in the epoch's order that rank `rank` computes in step `step` of an epoch. */
  def share(step: Int, rank: Int): (Int, Int) = share(step, rank, even)

  /** The same where rows are dealt out otherwise. */
  def share(step: Int, rank: Int, shares: Shares): (Int, Int) = {
    require(rank >= 0, s"rank $rank")
    val rows = batchRows(step)
    val (from, until) = if (rank < workers) shares.of(rows, rank) else (rows, rows)
    (start(step) + from, start(step) + until)
  }

  def even: Shares = Shares.even(workers)

  /** The most rows that a rank is given where all get as many. */
  def maxShare: Int = Slices(math.min(batch, rows), workers).maxSize

  /** The epoch, from 0, that global step `step` belongs to. */
  def epochOf(step: Long): Int = Math.toIntExact(step / stepsPerEpoch)

  /** The step inside its epoch, from 0, that global step `step` is. */
  def stepInEpoch(step: Long): Int = (step % stepsPerEpoch).toInt

  private def start(step: Int): Int = {
    require(step >= 0 && step < stepsPerEpoch, s"step $step of an epoch of $stepsPerEpoch")
    step * batch
  }
}
