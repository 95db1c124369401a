package sparkdlbench.model

import sparkdlbench.common.ConfigurationException

/**
 * One layer of the engine-neutral specification. What `kind` and `options` mean is in docs/reference/models.md.
 *
 * @param name
 *   unique in the model, e.g. `fc1`
 * @param kind
 *   `linear`, `conv2d`, `relu`, …
 * @param options
 *   numbers by name, e.g. `in` and `out` of a linear layer
 * @param initializer
 *   name of the weights' initialiser; empty where the layer has no weights
 * @param inputs
 *   names of the layers whose output it reads, each before it in the list, or `input` for the model's; empty: the layer before
 * @param biasInitializer
 *   name of the bias's initialiser
 */
final case class LayerSpec(
    name: String,
    kind: String,
    options: Map[String, Double] = Map.empty,
    initializer: String = "",
    inputs: Seq[String] = Nil,
    biasInitializer: String = "zero"
) {

  /** An option that must be there: a whole number of at least 1. */
  def int(option: String): Int = whole(
    option,
    options.getOrElse(
      option,
      throw new ConfigurationException(
        s"Layer '$name' of kind '$kind' lacks its option '$option'; it has: ${options.keys.toSeq.sorted.mkString(", ")}."
      )
    ),
    1
  )

  def int(option: String, default: Int, least: Int = 1): Int =
    options.get(option).fold(default)(whole(option, _, least))

  /** An option that is 0 or 1. */
  def flag(option: String, default: Boolean): Boolean = options.get(option).fold(default) { value =>
    if (value != 0 && value != 1) throw invalid(option, value, "0 or 1")
    value == 1
  }

  def number(
      option: String,
      default: Double,
      least: Double = Double.MinValue,
      below: Double = Double.MaxValue
  ): Double = {
    val value = options.getOrElse(option, default)
    if (!(value >= least && value < below)) throw invalid(option, value, s"a number from $least to less than $below")
    value
  }

  private def whole(option: String, value: Double, least: Int): Int = {
    if (value != math.rint(value) || value < least || value > Int.MaxValue)
      throw invalid(option, value, s"a whole number, at least $least")
    value.toInt
  }

  private def invalid(option: String, value: Double, valid: String) =
    new ConfigurationException(s"Layer '$name' of kind '$kind' has $option=$value, which is not valid. Valid: $valid.")
}

object LayerSpec {

  /** The name by which layers read the model's own input. */
  val Input = "input"
}
