package sparkdlbench.optimizer

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.config.{RunKeys, Settings}
import sparkdlbench.vector.FlatBuffer

import java.nio.FloatBuffer
import scala.util.Random

class AdaGradSuite extends AnyFunSuite {
  private val variant = new AdaGradVariant
  private val settings = Settings.resolve(
    Map("optimizer.learning_rate" -> "0.1", "optimizer.weight_decay" -> "0.01"),
    RunKeys.own ++ variant.keys ++ LearningRateSchedule.keys
  )
  private def buffer(values: Array[Float]): FloatBuffer = {
    val flat = new FlatBuffer(values.length)
    flat.floats.put(0, values)
    flat.floats.duplicate()
  }

  test("steps are the definition's, in slices of any length, with the state restored in between") {
    val random = new Random(3)
    val start = Array.fill(3001)(random.nextGaussian().toFloat)
    val gradients = Seq.fill(4)(Array.fill(3001)(random.nextGaussian().toFloat))
    val (w, s) = (start.map(_.toDouble), new Array[Double](3001))
    for (g <- gradients; i <- w.indices) {
      val d = g(i) + 0.01 * w(i)
      s(i) += d * d
      w(i) -= 0.1 * d / (math.sqrt(s(i)) + 1e-8)
    }
    for ((from, until) <- Seq((0, 3001), (0, 1), (1, 1500), (1500, 3001))) {
      val part = buffer(start.slice(from, until))
      var own = variant.create(until - from, settings)
      gradients.zipWithIndex.foreach { case (g, step) =>
        val next = variant.create(until - from, settings)
        own.state.foreach { case (name, values) => values.copyToArray(next.state(name)) }
        own = next
        own.update(part, buffer(g.slice(from, until)), step.toLong)
      }
      (from until until).foreach(i => assert(math.abs(part.get(i - from) - w(i)) < 1e-5))
    }
  }
}
