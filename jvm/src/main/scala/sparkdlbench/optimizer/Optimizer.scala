package sparkdlbench.optimizer

import sparkdlbench.config.{Axis, Key, RunKeys, Settings, Variant, Variants}

import java.nio.FloatBuffer

/** Turns gradients into weights for one slice of the flat buffer; its state (momentum, …) covers that slice alone. */
trait Optimizer {

  /**
   * One update, in place.
   *
   * @param weights
   *   the slice's weights, overwritten
   * @param gradient
   *   the global gradient of the slice, same length
   * @param step
   *   number of this step, from 0
   */
  def update(weights: FloatBuffer, gradient: FloatBuffer, step: Long): Unit

  /** The state's arrays by name, each as long as the slice; for checkpoints. Shared memory, not copies. */
  def state: Map[String, Array[Float]]
}

/**
 * An optimiser that needs the Euclidean lengths of each whole tensor of parameters and of its gradient, parts of which may lie at
 * other owners. Before every `update` all owners `addSquares`, the sums are made over them, and `squaresAre` takes these.
 */
trait LayerwiseOptimizer extends Optimizer {

  /**
   * Adds the sums of the squares of what the slice holds.
   *
   * @param into
   *   two values a tensor, in the order of the model's layout: of its weights, of its gradient
   */
  def addSquares(weights: FloatBuffer, gradient: FloatBuffer, into: Array[Double]): Unit

  /** @param whole the sums over all slices, for the next `update` */
  def squaresAre(whole: Array[Double]): Unit
}

/**
 * Keeps subnormal numbers out of an optimiser's state, where each one costs some cores a hundred cycles in every update. A velocity whose
 * gradient stays zero, as that of a dead unit does, would decay into them and never leave: rounded to the nearest, 0.9 of the least of them
 * is itself.
 *
 * `(x + c) - c` rounds x to a multiple of c's last binary place: two additions, which C2 vectorises as it does the rest of a loop (a comparison of
 * each value costs ten times as much). Values of at least 2^25 times c stay as they are, bit for bit.
 */
private[optimizer] object Grid {

  /**
   * 2^-70, of velocities and first moments: multiples of 2^-94 (5e-29). Coarse enough that what is left, times a learning rate of
   * 2^-32 or more, is no subnormal number either.
   */
  final val Moments = 8.4703295e-22f

  /** 2^-101, of sums and means of squares, of which the root is taken: multiples of 2^-124 (5e-38). */
  final val Squares = 3.9443045e-31f
}

object Optimizer {

  private[optimizer] def requireLengths(length: Int, weights: FloatBuffer, gradient: FloatBuffer): Unit = require(
    weights.remaining() == length && gradient.remaining() == length,
    s"a slice of $length values, ${weights.remaining()} weights, ${gradient.remaining()} gradients"
  )

  /** An update where the slice is the model's whole vector. */
  def updateWhole(optimizer: Optimizer, weights: FloatBuffer, gradient: FloatBuffer, tensors: Int, step: Long): Unit = {
    optimizer match {
      case layerwise: LayerwiseOptimizer =>
        val squares = new Array[Double](2 * tensors)
        layerwise.addSquares(weights, gradient, squares)
        layerwise.squaresAre(squares)
      case _ => ()
    }
    optimizer.update(weights, gradient, step)
  }
}

trait OptimizerVariant extends Variant {

  /** Whether it makes a `LayerwiseOptimizer`. */
  def layerwise: Boolean = false

  /** Whether the number of a step is to it the number of its updates, so that each step must update every value once. */
  def countsUpdates: Boolean = false

  /** @param slice the parameters whose optimiser it is */
  def create(slice: ParameterSlice, settings: Settings): Optimizer

  /** For `length` values of one tensor with the run's own learning rate and weight decay. */
  final def create(length: Int, settings: Settings): Optimizer = create(ParameterSlice.tensor(length), settings)
}

final class OptimizerAxis extends Axis {
  def place = 8
  def name = "optimizer"
  def key: Key[String] = RunKeys.optimizer
  def variants: Seq[Variant] = Variants.all[OptimizerVariant]
}
