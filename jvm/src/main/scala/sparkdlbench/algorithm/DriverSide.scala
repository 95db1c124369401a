package sparkdlbench.algorithm

import sparkdlbench.rank.{OwnedShard, RunContext, Snapshot, StateRange}
import sparkdlbench.vector.FlatBuffer

/** Passes over the rows at all ranks as a driver sees them that holds the whole model (topology `tree`). One thread. */
trait DriverPasses {
  def setup: RunContext

  /** The weights; ranks compute with what stood there when `changed` was last called. */
  def weights: FlatBuffer

  /** Of all rows of the last pass: the sum of their gradients, each divided by the number of rows. */
  def gradient: FlatBuffer

  /**
   * Lets all ranks compute loss and gradient of a step's rows.
   *
   * @param number
   *   of the pass; messages have it
   * @return
   *   the sum of the rows' losses
   */
  def pass(step: Long, number: Long): Double

  /** Sends the weights to the ranks. @param number of the pass after which they changed, or that comes next */
  def changed(number: Long): Unit
}

/** An algorithm where the driver holds the whole model. One thread. */
trait DriverSide {

  /** @return the sum of the losses of all rows of the step */
  def step(step: Long): Double

  /** Makes the weights those to evaluate and to keep. */
  def drain(): Unit = ()

  /** A copy of those. */
  def weights: Array[Float]

  /** Copies of all that has to be kept to go on from here. */
  def state: Seq[StateRange]

  /** Goes on from a checkpoint; before the first `step`. */
  def restore(snapshot: Snapshot): Unit

  /** As those of `RankAlgorithm`. */
  def counts: Map[String, Seq[Long]] = Map.empty
}

/** That of algorithms whose step is the sum of all gradients: one optimiser changes all weights along it. */
private final class SumAtDriver(passes: DriverPasses) extends DriverSide {
  private val setup = passes.setup
  private val shard = OwnedShard.within(
    0,
    passes.weights.floats,
    passes.gradient.floats,
    rounded = false,
    setup.newOptimizer(0, passes.weights.length)
  )

  def step(step: Long): Double = {
    val loss = passes.pass(step, step)
    shard.updateWhole(setup.settings, setup.spec.layout.size, step)
    passes.changed(step)
    loss
  }

  def weights: Array[Float] = shard.values
  def state: Seq[StateRange] = shard.state

  def restore(snapshot: Snapshot): Unit = {
    shard.restore(snapshot.vectors(passes.weights.length))
    passes.changed(snapshot.step - 1)
  }
}
