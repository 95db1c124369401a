package sparkdlbench.model

import sparkdlbench.ConfigurationException
import sparkdlbench.config.{Settings, Variant}

/**
 * One layer of the engine-neutral specification. What `kind` and `options` mean is in docs/models.md.
 *
 * @param name
 *   unique in the model, e.g. `fc1`
 * @param kind
 *   `linear`, `relu`, `tanh`, …
 * @param options
 *   numbers by name, e.g. `in` and `out` of a linear layer
 * @param initializer
 *   name of the weights' initialiser; empty where the layer has no weights
 */
final case class LayerSpec(
    name: String,
    kind: String,
    options: Map[String, Double] = Map.empty,
    initializer: String = ""
)

/** One parameter tensor's place in the flat buffer: values `offset` until `offset + length`, row-major `shape`. */
final case class ParameterSpec(name: String, shape: Seq[Int], offset: Int, initializer: String) {
  def length: Int = shape.product
}

/**
 * A model, independent of engines: layers from input to class scores (logits).
 *
 * @param inputShape
 *   shape of one row, e.g. Seq(784) or Seq(3, 32, 32)
 */
final case class ModelSpec(name: String, inputShape: Seq[Int], classes: Int, layers: Seq[LayerSpec]) {

  /** The parameters in the order of the layers (weight, then bias), densely packed. This alone decides the layout. */
  lazy val layout: Seq[ParameterSpec] = ParameterLayout.of(layers)

  def parameterCount: Int = layout.lastOption.fold(0)(last => last.offset + last.length)

  /** Shapes of one row: the input's, then each layer's output's. A ConfigurationException where layers do not fit together. */
  lazy val shapes: Seq[Seq[Int]] = {
    val found = layers.scanLeft(inputShape)((shape, layer) => LayerKinds.outputShape(layer, shape))
    if (found.last.map(_.toLong).product != classes)
      throw new ConfigurationException(
        s"Model '$name' ends with rows of ${found.last.mkString("×")} values, but the data have $classes classes; the last layer " +
          s"must give one value a class."
      )
    found
  }

  /** The specification as JSON (docs/models.md); `ModelSpec.fromJson` reads it back. */
  def toJson: String = ModelJson.write(this)
}

object ModelSpec {

  /** Reads what `toJson` wrote; a ConfigurationException says what is wrong with other text. */
  def fromJson(json: String): ModelSpec = ModelJson.read(json)
}

object ParameterLayout {
  def of(layers: Seq[LayerSpec]): Seq[ParameterSpec] = {
    val shapes = layers.flatMap { layer =>
      LayerKinds.parameterShapes(layer).map { case (suffix, shape) =>
        (s"${layer.name}.$suffix", shape, if (suffix == "bias") "zero" else layer.initializer)
      }
    }
    val offsets = shapes.scanLeft(0L)((offset, shape) => offset + shape._2.map(_.toLong).product)
    require(offsets.last <= Int.MaxValue, s"a model of ${offsets.last} parameters does not fit one flat buffer")
    shapes.zip(offsets).map { case ((name, shape, initializer), offset) =>
      ParameterSpec(name, shape, offset.toInt, initializer)
    }
  }
}

/** Builds a specification from the configuration: `softmax`, `mlp`, … */
trait ModelFamily extends Variant {
  def build(inputShape: Seq[Int], classes: Int, settings: Settings): ModelSpec
}
