package sparkdlbench.train

import sparkdlbench.collective.VectorMean
import sparkdlbench.common.ConfigurationException
import sparkdlbench.rank.{Snapshot, StateRange}
import sparkdlbench.vector.FlatBuffer

/**
 * One rank's running statistics in a one-stage run. Each rank's own follow its own rows; before anything reads them (evaluation,
 * checkpoint, result) all ranks take the mean over the ranks. Training itself never reads them.
 *
 * @param mean
 *   None where there is nothing to average: one rank, or a model without statistics
 */
private[train] final class Statistics(values: FlatBuffer, rank: Int, mean: Option[VectorMean]) {
  private var sharedAfter = -1L

  /** A collective call: averages, unless that was done after the same step already. */
  def share(stepsMade: Long): Unit = if (sharedAfter != stepsMade) {
    mean.foreach(_.average())
    sharedAfter = stepsMade
  }

  /** What a checkpoint keeps of them: rank 0's, which are everybody's. */
  def state: Seq[StateRange] =
    if (rank == 0 && values.length > 0) Seq(StateRange(Statistics.Name, 0, values.toArray)) else Nil

  def restore(snapshot: Snapshot): Unit = if (values.length > 0) {
    val found = snapshot.vector(Statistics.Name, values.length)
    values.floats.put(
      0,
      found.getOrElse(
        throw new ConfigurationException(
          s"The checkpoint after step ${snapshot.step} holds no running statistics, and the model has ${values.length}; it was written with " +
            "another model. Resume with the model settings of the run that wrote it."
        )
      )
    )
  }

  def result: Array[Float] = if (rank == 0) values.toArray else Array.empty
}

private[train] object Statistics {
  val Name = "statistics"

  /** The ranks' mean, summed in the order of the ranks. */
  def mean(all: Seq[Array[Float]]): Array[Float] = {
    val sums = all.reduce((sum, next) => sum.zip(next).map { case (a, b) => a + b })
    sums.map(_ * (1f / all.size))
  }
}
