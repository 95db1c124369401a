package sparkdlbench.model

import scala.collection.mutable
import sparkdlbench.common.ConfigurationException

/**
 * Puts a model together layer by layer and knows the shape of each layer's rows, so that families state outputs alone. A layer
 * reads the one before it, or the one named by `input`. Options at their default are left out.
 *
 * @param inputShape
 *   shape of one row
 * @param biases
 *   how the biases of its convolutions and linear layers are trained
 */
private[model] final class NetBuilder(name: String, inputShape: Seq[Int], biases: NetBuilder.Biases) {
  def this(name: String, inputShape: Seq[Int]) = this(name, inputShape, NetBuilder.Plain)

  private val layers = mutable.ArrayBuffer.empty[LayerSpec]
  private val shapes = mutable.Map(LayerSpec.Input -> inputShape)

  /** Name of the layer added last. */
  def last: String = layers.lastOption.fold(LayerSpec.Input)(_.name)

  def add(layer: LayerSpec): NetBuilder = {
    val inputs = if (layer.inputs.isEmpty) Seq(last) else layer.inputs
    shapes(layer.name) = LayerKinds.outputShape(layer, inputs.map(shapes))
    layers += layer
    this
  }

  def conv(
      layer: String,
      out: Int,
      kernel: Int,
      initializer: String,
      stride: Int = 1,
      padding: Int = 0,
      groups: Int = 1,
      bias: Option[String] = Some("zero"),
      input: String = ""
  ): NetBuilder = add(
    LayerSpec(
      layer,
      "conv2d",
      numbers("in" -> channels(input), "out" -> out, "kernel" -> kernel) ++ unless("stride", stride, 1) ++
        unless("padding", padding, 0) ++ unless("groups", groups, 1) ++ (if (bias.isEmpty) numbers("bias" -> 0)
                                                                         else biases.options),
      initializer,
      named(input),
      bias.getOrElse("zero")
    )
  )

  def linear(layer: String, out: Int, initializer: String, bias: String = "zero"): NetBuilder = add(
    LayerSpec(
      layer,
      "linear",
      numbers("in" -> shapes(last).product, "out" -> out) ++ biases.options,
      initializer,
      Nil,
      bias
    )
  )

  def relu(layer: String): NetBuilder = add(LayerSpec(layer, "relu"))

  def maxPool(
      layer: String,
      kernel: Int,
      stride: Int,
      padding: Int = 0,
      ceil: Boolean = false,
      input: String = ""
  ): NetBuilder =
    add(LayerSpec(layer, "max-pool", pooling(kernel, stride, padding, ceil), inputs = named(input)))

  def avgPool(layer: String, kernel: Int, stride: Int, padding: Int = 0, ceil: Boolean = false): NetBuilder =
    add(LayerSpec(layer, "avg-pool", pooling(kernel, stride, padding, ceil)))

  def globalAvgPool(layer: String): NetBuilder = add(LayerSpec(layer, "global-avg-pool"))

  def batchNorm(layer: String, eps: Double = BatchNormKind.Eps): NetBuilder = add(
    LayerSpec(
      layer,
      "batch-norm",
      numbers("channels" -> channels("")) ++ (if (eps == BatchNormKind.Eps) Map.empty else Map("eps" -> eps)),
      "one"
    )
  )

  def localResponseNorm(layer: String): NetBuilder = add(LayerSpec(layer, "local-response-norm"))

  def dropout(layer: String, rate: Double): NetBuilder = add(LayerSpec(layer, "dropout", Map("rate" -> rate)))

  def join(layer: String, kind: String, inputs: String*): NetBuilder = add(
    LayerSpec(layer, kind, inputs = inputs.toList)
  )

  def result(classes: Int): ModelSpec = ModelSpec(name, inputShape, classes, layers.toList)

  private def channels(input: String): Int = shapes(if (input.isEmpty) last else input).head
  private def named(input: String): Seq[String] = if (input.isEmpty) Nil else Seq(input)
  private def numbers(options: (String, Int)*): Map[String, Double] = options.map { case (option, value) =>
    option -> value.toDouble
  }.toMap
  private def unless(option: String, value: Int, default: Int) =
    if (value == default) Map.empty[String, Double] else numbers(option -> value)
  private def pooling(kernel: Int, stride: Int, padding: Int, ceil: Boolean) =
    numbers("kernel" -> kernel, "stride" -> stride) ++ unless("padding", padding, 0) ++ unless(
      "ceil",
      if (ceil) 1 else 0,
      0
    )
}

private[model] object NetBuilder {

  /** Options of every layer with a bias. */
  final case class Biases(options: Map[String, Double])

  val Plain: Biases = Biases(Map.empty)

  /** Twice the weights' learning rate: `param { lr_mult: 1 } param { lr_mult: 2 }`, as most of Caffe's nets have it. */
  val Twice: Biases = Biases(Map("bias_lr_mult" -> 2.0))

  /** And no weight decay: `param { lr_mult: 1 decay_mult: 1 } param { lr_mult: 2 decay_mult: 0 }`. */
  val TwiceWithoutDecay: Biases = Biases(Twice.options + ("bias_decay_mult" -> 0.0))

  /** For a model of images: rows of channels × height × width; those of height × width count as one channel. */
  def images(name: String, inputShape: Seq[Int], biases: Biases = Plain): NetBuilder = inputShape match {
    case Seq(_, _, _) => new NetBuilder(name, inputShape, biases)
    case Seq(height, width) => new NetBuilder(name, Seq(1, height, width), biases)
    case other =>
      throw new ConfigurationException(
        s"The model '$name' needs images (rows of channels × height × width values), and the data set has rows of shape " +
          s"${other.mkString("×")}. Choose a data source that gives images, set data.shape for synthetic rows (such as 1,28,28), or take " +
          "model.name=mlp."
      )
  }
}
