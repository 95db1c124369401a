package sparkdlbench.model

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException
import sparkdlbench.vector.FlatBuffer

class InitializersSuite extends AnyFunSuite {
  private def spec(hidden: String) =
    new MlpFamily().build(Seq(30), 10, RunKeysForTests.settings("model.hidden" -> hidden))

  private def weights(model: ModelSpec, seed: Long): Seq[Float] = {
    val buffer = new FlatBuffer(model.parameterCount)
    Initializers.fill(model, seed, buffer)
    buffer.toArray.toSeq
  }

  test("the same seed gives the same bits, another seed others") {
    assert(weights(spec("50"), 7) == weights(spec("50"), 7))
    assert(weights(spec("50"), 7) != weights(spec("50"), 8))
  }

  test("a value depends on seed, tensor and element alone: another language makes it from the documented formula") {
    // Computed with Python integers from the formula in Initializers' documentation: seed 42, he-uniform, shape (50, 30).
    val model = spec("50")
    val found = weights(model, 42)
    InitializersSuite.pythonValues.foreach { case (parameter, element, value) =>
      assert(found(model.layout(parameter).offset + element) == value, s"parameter $parameter, element $element")
      val tensor = model.layout(parameter)
      assert(Initializers.value(tensor.initializer, tensor.shape, 42, parameter, element) == value)
    }
  }

  test("weights fill their bounds evenly, biases are zero") {
    val model = spec("400")
    val found = weights(model, 1)
    val hidden = found.slice(0, 400 * 30)
    val bound = math.sqrt(6.0 / 30)
    assert(hidden.forall(value => value.abs <= bound))
    assert(hidden.max > 0.99 * bound && hidden.min < -0.99 * bound)
    assert((hidden.map(_.toDouble).sum / hidden.size).abs < 3 * bound / math.sqrt(3.0 * hidden.size))
    val variance = hidden.map(value => value.toDouble * value).sum / hidden.size
    assert((variance / (bound * bound / 3) - 1).abs < 0.05)
    assert(found.slice(400 * 30, 400 * 31).forall(_ == 0f))
    assert(hidden.distinct.size > 0.99 * hidden.size)
  }

  test("normal weights have the stated deviation, skew and tails") {
    val values = (0 until 100000).map(Initializers.value("gaussian-0.01", Seq(1000, 100), 5, 2, _).toDouble)
    val mean = values.sum / values.size
    val variance = values.map(value => value * value).sum / values.size
    assert(mean.abs < 0.01 * 3 / math.sqrt(values.size.toDouble))
    assert((variance / 1e-4 - 1).abs < 0.02)
    // Of a normal distribution 31.7 % lie beyond one deviation, 4.55 % beyond two, 0.27 % beyond three.
    Seq(1 -> 0.317, 2 -> 0.0455, 3 -> 0.0027).foreach { case (deviations, share) =>
      val found = values.count(_.abs > 0.01 * deviations).toDouble / values.size
      assert((found - share).abs < 0.1 * share + 0.0005, s"$found beyond $deviations deviations")
    }
  }

  test("scales by name") {
    def deviation(name: String) = Initializers.value(name, Seq(8, 4, 3, 3), 3, 0, 7) /
      Initializers.value("gaussian-1", Seq(8, 4, 3, 3), 3, 0, 7)
    assert((deviation("he-normal") - math.sqrt(2.0 / 36)).abs < 1e-6)
    assert((deviation("he-out-normal") - math.sqrt(2.0 / 72)).abs < 1e-6)
    assert((deviation("lecun-normal") - math.sqrt(1.0 / 36)).abs < 1e-6)
    assert((deviation("xavier-normal") - math.sqrt(2.0 / 108)).abs < 1e-6)
    assert(Initializers.value("constant-0.2", Seq(3), 3, 0, 1) == 0.2f)
    val bounded = (0 until 2000).map(Initializers.value("torch-uniform", Seq(8, 4, 3, 3), 3, 0, _).abs).max
    assert(bounded <= 1 / 6f && bounded > 0.99 / 6)
  }

  test("bounds of convolution weights count the receptive field") {
    val values = (0 until 5000).map(Initializers.value("xavier-uniform", Seq(8, 4, 3, 3), 3, 0, _))
    val bound = math.sqrt(6.0 / (4 * 9 + 8 * 9))
    assert(values.map(_.abs).max <= bound && values.map(_.abs).max > 0.99 * bound)
  }

  test("an unknown initialiser and one that does not fit are refused") {
    assert(
      intercept[ConfigurationException](Initializers.value("magic", Seq(2, 2), 0, 0, 0)).getMessage
        .contains("he-uniform")
    )
    assert(
      intercept[ConfigurationException](Initializers.value("he-uniform", Seq(2), 0, 0, 0)).getMessage
        .contains("two dimensions")
    )
  }
}

object InitializersSuite {

  /** (parameter, element, value). */
  val pythonValues: Seq[(Int, Int, Float)] = Seq(
    (0, 0, -0.14016400277614594f),
    (0, 1, 0.4076322317123413f),
    (0, 1499, -0.23109868168830872f),
    (2, 0, -0.3159898817539215f),
    (2, 499, -0.12171029299497604f)
  )
}
