package sparkdlbench.train

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.LocalRuns
import sparkdlbench.optimizer.Optimizer
import sparkdlbench.vector.FlatBuffer

import java.nio.FloatBuffer

/** `on_nonfinite = skip` at one rank, by hand. */
class StepGuardSuite extends AnyFunSuite with LocalRuns {
  override protected def common: Map[String, String] = Map("workers" -> "1", "on_nonfinite" -> "skip")

  private final class Held extends IdleEngine {
    val parameters, gradients = new FlatBuffer(3)
    val statistics = new FlatBuffer(1)
  }

  private final class Counting extends Optimizer {
    var updates = 0
    def update(weights: FloatBuffer, gradient: FloatBuffer, step: Long): Unit = updates += 1
    def state: Map[String, Array[Float]] = Map.empty
  }

  test("one bad step is left out by all owners and counted once; its statistics and its loss do not count") {
    val engine = new Held
    val guard = new StepGuard(prepared().setup, engine)
    val (first, second) = (new Counting, new Counting)
    val owners = Seq(guard.around(first, first = true) -> 0, guard.around(second, first = false) -> 2)
    def step(number: Long, loss: Double, value: Float): Double = {
      val told = guard.checked(rows = 4) {
        engine.statistics.floats.put(0, number.toFloat)
        engine.gradients.floats.put(0, Array(1f, value, 1f))
        loss
      }
      owners.foreach { case (owner, at) =>
        owner.update(engine.parameters.floatSlice(at, 3), engine.gradients.floatSlice(at, 3), number)
      }
      told
    }
    assert(step(1, 8.0, 1f) == 8.0)
    assert(step(2, Double.NaN, 1f) == 8.0) // as the rows of the step before
    assert(step(3, 4.0, Float.PositiveInfinity) == 8.0) // the loss is finite, the gradient is not
    assert(engine.statistics.floats.get(0) == 1f)
    assert(step(4, 6.0, 1f) == 6.0)
    assert((first.updates, second.updates, guard.skipped) == ((2, 2, 2L)))
  }
}
