package sparkdlbench.optimizer

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.config.{RunKeys, Settings, Variants}
import sparkdlbench.model.ParameterSpec
import sparkdlbench.vector.FlatBuffer

import java.nio.FloatBuffer
import scala.util.Random

/** No optimiser's state holds a subnormal number, whatever its gradients decay to; nor do its weights notice. */
class SubnormalSuite extends AnyFunSuite {
  private val steps = 10000
  private val size = 96
  private val layout = Seq(ParameterSpec("all", Seq(size), 0, "zero"))
  private val chosen = Map("optimizer.learning_rate" -> "0.001", "optimizer.trust" -> "0.001")

  private def buffer(values: Array[Float]): FloatBuffer = {
    val flat = new FlatBuffer(values.length)
    flat.floats.put(0, values)
    flat.floats.duplicate()
  }

  /** Of each value another: noise that ends (a unit that dies), decays, constants down to a subnormal one, and none at all. */
  private def gradient(step: Int, random: Random): Array[Float] = Array.tabulate(size) { i =>
    val noise = random.nextGaussian().toFloat
    i % 8 match {
      case 0 => noise
      case 1 => if (step < 100) noise else 0f
      case 2 => if (step < 5000) noise else 0f
      case 3 => (noise * math.pow(0.97, step.toDouble)).toFloat
      case 4 => (noise * math.pow(0.99, step.toDouble)).toFloat
      case 5 => noise * 1e-20f
      case 6 => if (step < 9990) noise * 1e-38f else 0f
      case _ => 0f
    }
  }

  private def isSubnormal(value: Float): Boolean = value != 0f && math.abs(value) < java.lang.Float.MIN_NORMAL

  private def trained(variant: OptimizerVariant, more: (String, String)*): (Optimizer, Array[Float]) = {
    val keys = RunKeys.own ++ variant.keys ++ LearningRateSchedule.keys
    val known = keys.map(_.name).toSet
    val settings = Settings.resolve((chosen ++ more).filter(each => known(each._1)), keys)
    val optimizer = variant.create(ParameterSlice(0, size, layout), settings)
    val weights = buffer(Array.fill(size)(1f))
    val random = new Random(7)
    (0 until steps).foreach { step =>
      Optimizer.updateWhole(optimizer, weights, buffer(gradient(step, random)), 1, step.toLong)
    }
    val values = new Array[Float](size)
    weights.get(0, values)
    (optimizer, values)
  }

  test("after 10,000 steps no optimiser's state holds a subnormal number") {
    val momenta = Seq("0.5", "0.9", "0.99").map("optimizer.momentum" -> _)
    for {
      variant <- Variants.all[OptimizerVariant]
      more <- momenta.map(Seq(_)) :+ Seq("optimizer.momentum" -> "0.9", "optimizer.nesterov" -> "true")
    } {
      val (optimizer, _) = trained(variant, more: _*)
      assert(optimizer.state.nonEmpty, variant.name)
      optimizer.state.foreach { case (name, values) =>
        assert(values.count(isSubnormal) == 0, s"${variant.name}, $more: $name")
        assert(values.exists(_ != 0f) && values.forall(value => !value.isNaN), s"${variant.name}, $more: $name")
      }
    }
  }

  test("weights are those of velocities that decay as they will, bit for bit") {
    val (_, found) = trained(new SgdVariant, "optimizer.momentum" -> "0.9")
    val (weights, velocity, random) = (Array.fill(size)(1f), new Array[Float](size), new Random(7))
    (0 until steps).foreach { step =>
      gradient(step, random).zipWithIndex.foreach { case (g, i) =>
        velocity(i) = 0.9f * velocity(i) + g
        weights(i) -= 0.001f * velocity(i)
      }
    }
    assert(velocity.count(isSubnormal) > 0) // or this test would prove nothing
    assert(found.toSeq == weights.toSeq)
  }

  test("what is left of a velocity, times a learning rate, is no subnormal number either") {
    val (optimizer, _) = trained(new SgdVariant, "optimizer.momentum" -> "0.9")
    for (value <- optimizer.state("velocity"); rate <- Seq(1e-9f, 1e-4f, 0.1f)) {
      assert(!isSubnormal(value * rate))
      assert(!isSubnormal(value * 0.9f))
    }
  }

  test("the grids are the powers of two that their documentation says") {
    assert(Grid.Moments == Math.scalb(1f, -70) && Grid.Squares == Math.scalb(1f, -101))
    for (value <- Seq(1f, -3.3e-9f, 2.9e-14f, Math.nextUp(Math.scalb(1f, -45))))
      assert((value + Grid.Moments) - Grid.Moments == value, value)
    for (value <- Seq(1f, 3.3e-9f, Math.nextUp(Math.scalb(1f, -76))))
      assert((value + Grid.Squares) - Grid.Squares == value, value)
  }
}
