package sparkdlbench.optimizer

import sparkdlbench.config.{Settings, Variant}

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

trait OptimizerVariant extends Variant {

  /** @param length number of values in the slice */
  def create(length: Int, settings: Settings): Optimizer
}
