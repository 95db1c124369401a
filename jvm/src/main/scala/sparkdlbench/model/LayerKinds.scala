package sparkdlbench.model

import sparkdlbench.ConfigurationException

/** What each kind of layer holds. */
object LayerKinds {

  /** Parameter tensors of a layer, in layout order, as (suffix, shape). */
  def parameterShapes(layer: LayerSpec): Seq[(String, Seq[Int])] = layer.kind match {
    case "linear" =>
      Seq("weight" -> Seq(option(layer, "out"), option(layer, "in")), "bias" -> Seq(option(layer, "out")))
    case "relu" | "tanh" => Nil
    case other => throw new ConfigurationException(s"Layer '${layer.name}' is of the unknown kind '$other'.")
  }

  def option(layer: LayerSpec, name: String): Int = layer.options
    .getOrElse(
      name,
      throw new ConfigurationException(s"Layer '${layer.name}' of kind '${layer.kind}' lacks its option '$name'.")
    )
    .toInt
}
