package sparkdlbench.model

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.ConfigurationException
import sparkdlbench.engine.FlatBuffer

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

  test("bounds of convolution weights count the receptive field") {
    val values = (0 until 5000).map(Initializers.value("xavier-uniform", Seq(8, 4, 3, 3), 3, 0, _))
    val bound = math.sqrt(6.0 / (4 * 9 + 8 * 9))
    assert(values.map(_.abs).max <= bound && values.map(_.abs).max > 0.99 * bound)
  }

  test("an unknown initialiser and one that does not fit are refused") {
    assert(
      intercept[ConfigurationException](Initializers.value("magic", Seq(2, 2), 0, 0, 0)).getMessage
        .contains("Valid: he-uniform")
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
