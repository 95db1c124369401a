package sparkdlbench.optimizer

import sparkdlbench.config.{Key, Settings}
import sparkdlbench.vector.FloatOps

import java.nio.FloatBuffer

/** Shortens the sum of all workers' gradients before the owners update their weights. */
private[sparkdlbench] object Clipping {
  val norm: Key[Double] = Key.number(
    "clip_norm",
    "0",
    0,
    "Above 0: the whole gradient is shortened to this Euclidean length where it is longer (sync-sgd, wherever the whole sum is known in time)"
  )

  /**
   * What the whole gradient is multiplied by where it is longer than `clip_norm`, as by PyTorch's `clip_grad_norm_`.
   *
   * @param squares
   *   the sum of its squares
   */
  def shortening(settings: Settings, squares: Double): Option[Float] = {
    val factor = settings(norm) / (math.sqrt(squares) + 1e-6)
    if (factor < 1) Some(factor.toFloat) else None
  }

  /** Shortens the sum of all workers' gradients as `clip_norm` asks for, where one place has the whole of it. */
  def whole(settings: Settings, gradient: FloatBuffer): Unit =
    if (settings(norm) > 0)
      shortening(settings, FloatOps.sumOfSquares(gradient)).foreach(FloatOps.scale(gradient, _))
}
