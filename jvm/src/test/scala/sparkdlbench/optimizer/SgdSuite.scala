package sparkdlbench.optimizer

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{RunKeys, Settings, Variants}
import sparkdlbench.vector.FlatBuffer

import java.nio.FloatBuffer
import scala.util.Random

class SgdSuite extends AnyFunSuite {
  private val variant = new SgdVariant
  private def settings(more: (String, String)*): Settings = Settings.resolve(more.toMap, RunKeys.own ++ variant.keys)
  private def buffer(values: Array[Float]): FloatBuffer = {
    val flat = new FlatBuffer(values.length)
    flat.floats.put(0, values)
    flat.floats.duplicate()
  }

  /** The update as its definition says, one value at a time. */
  private final class Reference(rate: Float, momentum: Float, decay: Float, nesterov: Boolean, weights: Array[Float]) {
    private val velocity = new Array[Float](weights.length)
    def update(gradient: Array[Float]): Unit = weights.indices.foreach { i =>
      val direction = gradient(i) + decay * weights(i)
      velocity(i) = momentum * velocity(i) + direction
      weights(
        i
      ) -= rate * (if (nesterov) direction + momentum * velocity(i) else if (momentum > 0) velocity(i) else direction)
    }
  }

  test("20 steps are the definition's, bit for bit, with and without momentum, Nesterov and weight decay") {
    for (
      (momentum, nesterov) <- Seq(("0", "false"), ("0.9", "false"), ("0.9", "true")); decay <- Seq("0", "0.01");
      size <- Seq(0, 1, 1024, 3001)
    ) {
      val random = new Random(1)
      def values() = Array.fill(size)(random.nextGaussian().toFloat)
      val start = values()
      val reference = start.clone()
      val weights = buffer(start)
      val plain = new Reference(0.05f, momentum.toFloat, decay.toFloat, nesterov.toBoolean, reference)
      val set = settings(
        "optimizer.learning_rate" -> "0.05",
        "optimizer.momentum" -> momentum,
        "optimizer.weight_decay" -> decay,
        "optimizer.nesterov" -> nesterov
      )
      val optimizer = variant.create(size, set)
      (0 until 20).foreach { step =>
        val gradient = values()
        plain.update(gradient)
        optimizer.update(weights, buffer(gradient), step.toLong)
      }
      assert(
        (0 until size).forall(i => weights.get(i) == reference(i)),
        s"momentum $momentum nesterov $nesterov decay $decay size $size"
      )
    }
  }

  test("a worked example: rate 0.1, momentum 0.9, decay 0.01, three steps down w^2 / 2 from w = 1") {
    // By hand: d = 1.01 w, v = 0.9 v + d, w -= 0.1 v, or with Nesterov w -= 0.1 (d + 0.9 v).
    Seq("false" -> Seq(0.899, 0.717301, 0.481324499), "true" -> Seq(0.8081, 0.57121561, 0.321859673441)).foreach {
      case (nesterov, wanted) =>
        val optimizer = variant.create(
          1,
          settings("optimizer.momentum" -> "0.9", "optimizer.weight_decay" -> "0.01", "optimizer.nesterov" -> nesterov)
        )
        val weights = buffer(Array(1f))
        val found = (0 until 3).map { step =>
          optimizer.update(weights, buffer(Array(weights.get(0))), step.toLong)
          weights.get(0).toDouble
        }
        found.zip(wanted).foreach { case (a, b) => assert(math.abs(a - b) < 1e-6, s"nesterov $nesterov: $found") }
    }
  }

  test("momentum's state is shared with the optimiser: restoring it goes on as if nothing had happened") {
    val set = settings("optimizer.momentum" -> "0.9")
    val (one, two) = (variant.create(3, set), variant.create(3, set))
    val weights = buffer(Array(1f, 2f, 3f))
    one.update(weights, buffer(Array(1f, -1f, 2f)), 0)
    val restored = buffer(Array(weights.get(0), weights.get(1), weights.get(2)))
    one.state("velocity").copyToArray(two.state("velocity"))
    one.update(weights, buffer(Array(1f, 1f, 1f)), 1)
    two.update(restored, buffer(Array(1f, 1f, 1f)), 1)
    assert((0 until 3).forall(i => weights.get(i) == restored.get(i)))
    assert(variant.create(3, settings()).state.isEmpty)
  }

  test("only the values between position and limit are touched") {
    val weights = buffer(Array(1f, 1f, 1f, 1f))
    weights.position(1).limit(3)
    val gradient = buffer(Array(9f, 1f, 2f))
    gradient.position(1)
    variant.create(2, settings("optimizer.learning_rate" -> "1")).update(weights, gradient, 0)
    assert((weights.position(), weights.limit(), gradient.position()) == ((1, 3, 1)))
    weights.clear()
    assert((0 until 4).map(i => weights.get(i)) == Seq(1f, 0f, -1f, 1f))
  }

  test("Nesterov without momentum is refused; sgd is found by its name") {
    val error = intercept[ConfigurationException](variant.create(1, settings("optimizer.nesterov" -> "true")))
    assert(error.getMessage.contains("optimizer.momentum"))
    assert(Variants.find[OptimizerVariant]("optimizer", "sgd").isInstanceOf[SgdVariant])
  }
}
