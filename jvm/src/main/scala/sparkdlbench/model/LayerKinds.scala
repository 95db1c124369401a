package sparkdlbench.model

import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Settings, Variants}

/** What each kind of layer holds, by its name. */
object LayerKinds {
  private lazy val kinds: Map[String, LayerKind] = Variants.all[LayerKind].map(kind => kind.name -> kind).toMap

  def names: Seq[String] = kinds.keys.toSeq.sorted

  /** Parameter tensors of a layer, in layout order, as (suffix, shape). */
  def parameterShapes(layer: LayerSpec): Seq[(String, Seq[Int])] = of(layer).parameterShapes(layer)

  def statistics(layer: LayerSpec): Seq[StatisticShape] = of(layer).statistics(layer)

  def exchanges(layer: LayerSpec): Seq[Int] = of(layer).exchanges(layer)

  /** Shape of a layer's output rows; a ConfigurationException where `inputs` do not fit, or an option does not exist. */
  def outputShape(layer: LayerSpec, inputs: Seq[Seq[Int]]): Seq[Int] = {
    val kind = of(layer)
    checkOptions(layer, kind)
    val (least, most) = kind.arity
    if (inputs.size < least || inputs.size > most)
      throw new ConfigurationException(
        s"Layer '${layer.name}' of kind '${layer.kind}' has ${inputs.size} inputs (${layer.inputs.mkString(", ")}), and takes " +
          s"${if (least == most) least.toString else s"$least or more"}. Name them in its field 'inputs'."
      )
    val shape = kind.outputShape(layer, inputs)
    if (shape.exists(_ < 1))
      throw new ConfigurationException(
        s"Layer '${layer.name}' of kind '${layer.kind}' would give rows of shape ${shape.mkString("×")} for an input of " +
          s"${inputs.map(_.mkString("×")).mkString(" and ")}: its window is larger than what it slides over. Use larger rows, a smaller " +
          "kernel, or more padding."
      )
    shape
  }

  def flops(layer: LayerSpec, inputs: Seq[Seq[Int]], output: Seq[Int]): Long = of(layer).flops(layer, inputs, output)

  private def checkOptions(layer: LayerSpec, kind: LayerKind): Unit =
    // Those of its parameters are asked for last: a layer without its sizes cannot tell which it has.
    layer.options.keys.toSeq.sorted
      .filterNot(kind.options.contains)
      .filterNot(multipliers(layer, kind).contains)
      .foreach { name =>
        throw new ConfigurationException(
          s"Layer '${layer.name}' of kind '${layer.kind}' has the option '$name', which that kind does not know." +
            s"${Settings.suggestion(name, kind.options)} Its options: ${if (kind.options.isEmpty) "none"
              else (kind.options ++ multipliers(layer, kind)).mkString(", ")}."
        )
      }

  private def multipliers(layer: LayerSpec, kind: LayerKind): Seq[String] =
    kind.parameterShapes(layer).flatMap { case (suffix, _) =>
      val (rate, decay) = ParameterLayout.multiplierOptions(suffix)
      Seq(rate, decay)
    }

  private def of(layer: LayerSpec): LayerKind = kinds.getOrElse(
    layer.kind,
    throw new ConfigurationException(
      s"Layer '${layer.name}' is of the unknown kind '${layer.kind}'.${Settings.suggestion(layer.kind, names)} Valid kinds: ${names
          .mkString(", ")}."
    )
  )
}
