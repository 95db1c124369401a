package sparkdlbench.train

import sparkdlbench.collective.VectorMean
import sparkdlbench.rank.{Snapshot, StateRange}
import sparkdlbench.vector.FlatBuffer

/**
 * One rank's running statistics in a one-stage run. Each rank's own follow its own rows; before anything reads them (evaluation,
 * checkpoint, result) all ranks take the mean over the ranks. Training itself never reads them.
 *
 * @param mean
 *   None where there is nothing to average: one rank, or a model without statistics
 */
private[train] final class RunningStatistics(values: FlatBuffer, rank: Int, mean: Option[VectorMean]) {
  private var sharedAfter = -1L

  /** A collective call: averages, unless that was done after the same step already. */
  def share(stepsMade: Long): Unit = if (sharedAfter != stepsMade) {
    mean.foreach(_.average())
    sharedAfter = stepsMade
  }

  /** What a checkpoint keeps of them: rank 0's, which are everybody's. */
  def state: Seq[StateRange] = if (rank == 0) RunningStatistics.state(values) else Nil

  def restore(snapshot: Snapshot): Unit = RunningStatistics.restore(values, snapshot)

  def result: Array[Float] = if (rank == 0) values.toArray else Array.empty
}

private[train] object RunningStatistics {
  val Name = "statistics"

  /** Their part of a checkpoint; nothing where the model has none. */
  def state(values: FlatBuffer): Seq[StateRange] =
    if (values.length > 0) Seq(StateRange(Name, 0, values.toArray)) else Nil

  def restore(values: FlatBuffer, snapshot: Snapshot): Unit =
    if (values.length > 0) values.floats.put(0, snapshot.required(Name, values.length)): Unit

  /** The ranks' mean, summed in the order of the ranks. */
  def mean(all: Seq[Array[Float]]): Array[Float] = {
    val sums = all.reduce((sum, next) => sum.zip(next).map { case (a, b) => a + b })
    sums.map(_ * (1f / all.size))
  }
}
