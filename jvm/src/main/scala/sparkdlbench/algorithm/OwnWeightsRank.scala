package sparkdlbench.algorithm

import sparkdlbench.rank.{Snapshot, StateRange}

/** A rank with weights of its own beside a vector that all ranks share: what of both is kept, and how both come back. */
private[algorithm] abstract class OwnWeightsRank(ranks: Int) extends RankAlgorithm {
  protected def steps: LocalSteps

  /** The mean, or the centre. */
  protected def shared: SharedVector

  /** Exchanges with other ranks that this one has been through. */
  protected var exchanges = 0L

  final override def counts: Map[String, Seq[Long]] = Map("exchanges" -> Seq(exchanges))

  /** Both are back; the ranks' own weights may have gone on since the shared vector was made. */
  protected def wentOn(snapshot: Snapshot): Unit = ()

  /** Before a checkpoint is taken; may be a collective call. */
  protected def beforeState(): Unit = ()

  /** The shared vector, by its owners; and of every rank its own weights and its own optimiser. */
  final def state: Seq[StateRange] = {
    beforeState()
    shared.flush()
    shared.state ++ steps.state
  }

  final def restore(snapshot: Snapshot): Unit = {
    shared.restore(snapshot, steps.vector(snapshot, "weights"), ranks)
    steps.restore(snapshot)
    wentOn(snapshot)
  }

  final def weights: Seq[(Int, Array[Float])] = shared.weights
}
