package sparkdlbench.train

import sparkdlbench.engine.Engine
import sparkdlbench.optimizer.{LayerwiseOptimizer, Optimizer}
import sparkdlbench.vector.{FlatBuffer, FloatOps}

import java.nio.FloatBuffer

/**
 * `on_nonfinite = skip` at one rank. A rank whose loss or gradient is not finite fills its whole gradient with NaN, so that each sum of it
 * is NaN throughout, whoever makes it: an owner looks at the first value of its range, and leaves the update out. So all owners do
 * the same without a message more. Costs a pass over the own gradient, and sending does not begin before the backward pass has ended.
 */
private[train] final class StepGuard(setup: RunSetup, engine: Engine) {
  val on: Boolean = NonFinite.skips(setup.settings)
  private val statistics = if (on) new FlatBuffer(engine.statistics.length) else null
  private var rowLoss = 0.0
  private var inARow = 0

  /** Updates left out, counted where the first weight is updated: one rank of the run has it. */
  var skipped: Long = 0

  /** A step's loss: of rows that are left out the mean loss of the last ones that were not. */
  def checked(rows: Int)(pass: => Double): Double = {
    FloatOps.copy(engine.statistics.floats, statistics.floats)
    val loss = pass
    if (NonFinite.isFinite(loss) && NonFinite.isFinite(FloatOps.sumOfSquares(engine.gradients.floats))) {
      if (rows > 0) rowLoss = loss / rows
      loss
    } else {
      FloatOps.fill(engine.gradients.floats, Float.NaN)
      FloatOps.copy(statistics.floats, engine.statistics.floats)
      rowLoss * rows
    }
  }

  /** @param first whether the range begins with the first weight */
  def around(optimizer: Optimizer, first: Boolean): Optimizer = optimizer match {
    case plain if !on => plain
    case layerwise: LayerwiseOptimizer => new GuardedLayerwise(layerwise, new Look(first))
    case other => new Guarded(other, new Look(first))
  }

  private[train] final class Look(first: Boolean) {
    def isGood(gradient: FloatBuffer, step: Long): Boolean = {
      val good = !gradient.hasRemaining || !gradient.get(gradient.position()).isNaN
      if (first) count(good, step)
      good
    }
  }

  private def count(good: Boolean, step: Long): Unit =
    if (good) inARow = 0
    else {
      skipped += 1
      inARow += 1
      if (inARow >= NonFinite.MostSkipped)
        throw NonFinite.diverged(
          setup,
          step,
          s"the gradients of ${NonFinite.MostSkipped} steps in a row were not finite, and on_nonfinite = skip left all of them out"
        )
    }
}

private class Guarded(inner: Optimizer, look: StepGuard#Look) extends Optimizer {
  def update(weights: FloatBuffer, gradient: FloatBuffer, step: Long): Unit =
    if (look.isGood(gradient, step)) inner.update(weights, gradient, step)
  def state: Map[String, Array[Float]] = inner.state
}

private final class GuardedLayerwise(inner: LayerwiseOptimizer, look: StepGuard#Look)
    extends Guarded(inner, look)
    with LayerwiseOptimizer {
  def addSquares(weights: FloatBuffer, gradient: FloatBuffer, into: Array[Double]): Unit =
    inner.addSquares(weights, gradient, into)
  def squaresAre(whole: Array[Double]): Unit = inner.squaresAre(whole)
}
