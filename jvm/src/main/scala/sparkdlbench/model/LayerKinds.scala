package sparkdlbench.model

import sparkdlbench.ConfigurationException

/** One kind of layer: what it holds and what it does to the shape of a row. A new kind is one object and one entry below. */
private[model] trait LayerKind {
  def kind: String

  /** Parameter tensors in layout order, as (suffix, shape). */
  def parameterShapes(layer: LayerSpec): Seq[(String, Seq[Int])]

  /** Shape of one output row for input rows of shape `input`. */
  def outputShape(layer: LayerSpec, input: Seq[Int]): Seq[Int]
}

/** y = x·Wᵀ + b; W is (out, in), b is (out). Rows of several dimensions are flattened, row-major. */
private[model] object LinearKind extends LayerKind {
  def kind = "linear"
  def parameterShapes(layer: LayerSpec): Seq[(String, Seq[Int])] =
    Seq(
      "weight" -> Seq(LayerKinds.option(layer, "out"), LayerKinds.option(layer, "in")),
      "bias" -> Seq(LayerKinds.option(layer, "out"))
    )
  def outputShape(layer: LayerSpec, input: Seq[Int]): Seq[Int] = {
    val expected = LayerKinds.option(layer, "in")
    if (input.map(_.toLong).product != expected)
      throw new ConfigurationException(
        s"Layer '${layer.name}' expects rows of $expected values, but is given rows of shape ${input.mkString("×")} " +
          s"(${input.map(_.toLong).product} values); set its option 'in' to the number of values before it."
      )
    Seq(LayerKinds.option(layer, "out"))
  }
}

/** An activation: value by value, no parameters. */
private[model] final case class ActivationKind(kind: String) extends LayerKind {
  def parameterShapes(layer: LayerSpec): Seq[(String, Seq[Int])] = Nil
  def outputShape(layer: LayerSpec, input: Seq[Int]): Seq[Int] = input
}

/** What each kind of layer holds. */
object LayerKinds {
  private val kinds: Map[String, LayerKind] =
    Seq[LayerKind](LinearKind, ActivationKind("relu"), ActivationKind("tanh")).map(kind => kind.kind -> kind).toMap

  def names: Seq[String] = kinds.keys.toSeq.sorted

  /** Parameter tensors of a layer, in layout order, as (suffix, shape). */
  def parameterShapes(layer: LayerSpec): Seq[(String, Seq[Int])] = of(layer).parameterShapes(layer)

  /** Shape of a layer's output rows; a ConfigurationException where `input` does not fit. */
  def outputShape(layer: LayerSpec, input: Seq[Int]): Seq[Int] = of(layer).outputShape(layer, input)

  def option(layer: LayerSpec, name: String): Int = layer.options
    .getOrElse(
      name,
      throw new ConfigurationException(
        s"Layer '${layer.name}' of kind '${layer.kind}' lacks its option '$name'; it has: ${layer.options.keys.toSeq.sorted.mkString(", ")}."
      )
    )
    .toInt

  private def of(layer: LayerSpec): LayerKind = kinds.getOrElse(
    layer.kind,
    throw new ConfigurationException(
      s"Layer '${layer.name}' is of the unknown kind '${layer.kind}'. Valid kinds: ${names.mkString(", ")}."
    )
  )
}
