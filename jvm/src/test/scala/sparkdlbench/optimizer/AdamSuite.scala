package sparkdlbench.optimizer

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.config.{RunKeys, Settings}
import sparkdlbench.vector.FlatBuffer

import java.nio.FloatBuffer
import scala.util.Random

class AdamSuite extends AnyFunSuite {
  private def settings(variant: OptimizerVariant, more: (String, String)*): Settings =
    Settings.resolve(more.toMap, RunKeys.own ++ variant.keys)
  private def buffer(values: Array[Float]): FloatBuffer = {
    val flat = new FlatBuffer(values.length)
    flat.floats.put(0, values)
    flat.floats.duplicate()
  }

  private def three(variant: OptimizerVariant, decay: String): Seq[Double] = {
    val optimizer = variant.create(
      3,
      settings(
        variant,
        "optimizer.learning_rate" -> "0.1",
        "optimizer.beta2" -> "0.99",
        "optimizer.weight_decay" -> decay
      )
    )
    val weights = buffer(Array(1f, -2f, 0.5f))
    (0L until 3L).foreach { step =>
      val gradient = Array(weights.get(0) * weights.get(0), weights.get(1) * weights.get(1), 1f)
      optimizer.update(weights, buffer(gradient), step)
    }
    (0 until 3).map(i => weights.get(i).toDouble)
  }

  /** The definition in double precision, one value at a time. */
  private def defined(decay: Double, decoupled: Boolean): Seq[Double] = {
    val w = Array(1.0, -2.0, 0.5)
    val (m, v) = (new Array[Double](3), new Array[Double](3))
    for (t <- 1 to 3) {
      val g = Array(w(0) * w(0), w(1) * w(1), 1.0)
      for (i <- 0 until 3) {
        val d = if (decoupled) g(i) else g(i) + decay * w(i)
        if (decoupled) w(i) *= 1 - 0.1 * decay
        m(i) = 0.9 * m(i) + 0.1 * d
        v(i) = 0.99 * v(i) + 0.01 * d * d
        w(i) -= 0.1 / (1 - math.pow(0.9, t)) * m(i) / (math.sqrt(v(i)) / math.sqrt(1 - math.pow(0.99, t)) + 1e-8)
      }
    }
    w.toSeq
  }

  test("three steps are the definition's, with and without weight decay, in the gradient and apart from it") {
    for (decay <- Seq("0", "0.1"); (variant, decoupled) <- Seq(new AdamVariant -> false, new AdamWVariant -> true))
      three(variant, decay).zip(defined(decay.toDouble, decoupled)).foreach { case (a, b) =>
        assert(math.abs(a - b) < 2e-6, s"${variant.name}, decay $decay")
      }
    assert(three(new AdamVariant, "0") == three(new AdamWVariant, "0"))
  }

  test("slices of any length are the same values; the state restored goes on as if nothing had happened") {
    val variant = new AdamVariant
    val random = new Random(3)
    val (start, gradients) =
      (Array.fill(3001)(random.nextGaussian().toFloat), Seq.fill(4)(Array.fill(3001)(random.nextGaussian().toFloat)))
    val whole = buffer(start)
    val optimizer = variant.create(3001, settings(variant))
    gradients.zipWithIndex.foreach { case (g, step) => optimizer.update(whole, buffer(g), step.toLong) }
    for ((from, until) <- Seq((0, 1), (1, 1500), (1500, 3001))) {
      val part = buffer(start.slice(from, until))
      var own = variant.create(until - from, settings(variant))
      gradients.zipWithIndex.foreach { case (g, step) =>
        val next = variant.create(until - from, settings(variant))
        own.state.foreach { case (name, values) => values.copyToArray(next.state(name)) }
        own = next
        own.update(part, buffer(g.slice(from, until)), step.toLong)
      }
      assert((from until until).forall(i => part.get(i - from) == whole.get(i)))
    }
  }
}
