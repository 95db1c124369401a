package sparkdlbench.model

import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Axis, Key, RunKeys, Settings, Variant, Variants}

import scala.util.Try

/**
 * One parameter tensor's place in the flat buffer: values `offset` until `offset + length`, row-major `shape`.
 *
 * @param rate
 *   factor of the run's learning rate (Caffe's lr_mult)
 * @param decay
 *   factor of the run's weight decay (Caffe's decay_mult)
 */
final case class ParameterSpec(
    name: String,
    shape: Seq[Int],
    offset: Int,
    initializer: String,
    rate: Double = 1,
    decay: Double = 1
) {
  def length: Int = shape.product
}

/**
 * A model, independent of engines: layers from input to class scores (logits). The list is in an order in which each layer
 * comes after those that it reads, so it is a directed graph without cycles.
 *
 * @param inputShape
 *   shape of one row, e.g. Seq(784) or Seq(3, 32, 32)
 */
final case class ModelSpec(name: String, inputShape: Seq[Int], classes: Int, layers: Seq[LayerSpec]) {

  /** The parameters in the order of the layers (weight, then bias), densely packed. This alone decides the layout. */
  lazy val layout: Seq[ParameterSpec] = ParameterLayout.of(layers)

  def parameterCount: Int = ParameterLayout.length(layout)

  /** Running statistics (of batch normalisation) in the order of the layers, densely packed in a buffer of their own. */
  lazy val statistics: Seq[ParameterSpec] = ParameterLayout.statistics(layers)

  def statisticsCount: Int = ParameterLayout.length(statistics)

  /** Lengths of the vectors that all ranks show each other in each training step; none where layers work on each rank's rows alone. */
  def exchanges: Seq[Int] = layers.flatMap(LayerKinds.exchanges)

  /**
   * The values that each layer reads, as indices into `shapes`: 0 is the model's input, i + 1 what layer i gives. A
   * ConfigurationException where names are taken twice or are not there.
   */
  lazy val graph: IndexedSeq[Seq[Int]] = LayerGraph.of(name, layers)

  /** Shapes of one row: the input's, then each layer's output's. A ConfigurationException where layers do not fit together. */
  lazy val shapes: IndexedSeq[Seq[Int]] = {
    val found = layers.zip(graph).foldLeft(Vector(inputShape)) { case (known, (layer, inputs)) =>
      known :+ LayerKinds.outputShape(layer, inputs.map(known))
    }
    if (found.last.map(_.toLong).product != classes)
      throw new ConfigurationException(
        s"Model '$name' ends with rows of ${found.last.mkString("×")} values, but the data have $classes classes; the last layer " +
          s"must give one value a class."
      )
    found
  }

  /** Floating-point operations of the forward pass of one row; a training step takes about three times as many. */
  def flops: Long = layers
    .zip(graph)
    .zipWithIndex
    .map { case ((layer, inputs), index) => LayerKinds.flops(layer, inputs.map(shapes), shapes(index + 1)) }
    .sum

  /** The specification as JSON (docs/reference/models.md); `ModelSpec.fromJson` reads it back. */
  def toJson: String = ModelJson.write(this)
}

object ModelSpec {

  /** Reads what `toJson` wrote; a ConfigurationException says what is wrong with other text. */
  def fromJson(json: String): ModelSpec = ModelJson.read(json)
}

private[model] object LayerGraph {

  /** For each layer the values that it reads: 0 is the model's input, i + 1 what layer i gives. */
  def of(model: String, layers: Seq[LayerSpec]): IndexedSeq[Seq[Int]] = {
    if (layers.isEmpty) throw new ConfigurationException(s"Model '$model' has no layers; it needs at least one.")
    val found = layers.zipWithIndex
      .foldLeft((Map(LayerSpec.Input -> 0), Vector.empty[Seq[Int]])) { case ((known, read), (layer, index)) =>
        if (known.contains(layer.name))
          throw new ConfigurationException(
            s"Model '$model' has two layers called '${layer.name}' (or one called '${LayerSpec.Input}', the name of its input); give each its own name."
          )
        val inputs =
          if (layer.inputs.isEmpty) Seq(index)
          else layer.inputs.map(name => known.getOrElse(name, throw missing(layer, name)))
        (known.updated(layer.name, index + 1), read :+ inputs)
      }
      ._2
    val unread = layers.indices.init.filterNot(index => found.exists(_.contains(index + 1)))
    if (unread.nonEmpty)
      throw new ConfigurationException(
        s"Nothing in model '$model' reads the output of ${unread.map(index => s"'${layers(index).name}'").mkString(", ")}; the last layer " +
          "alone gives the model's result. Name those layers as inputs of later ones, or remove them."
      )
    found
  }

  private def missing(layer: LayerSpec, input: String) = new ConfigurationException(
    s"Layer '${layer.name}' reads '$input', and no layer of that name comes before it. A layer is listed after those that it reads; " +
      s"the model's input is called '${LayerSpec.Input}'."
  )
}

object ParameterLayout {
  def of(layers: Seq[LayerSpec]): Seq[ParameterSpec] = {
    val tensors =
      layers.flatMap(layer => LayerKinds.parameterShapes(layer).map { case (suffix, shape) => (layer, suffix, shape) })
    val places = packed(tensors.map { case (layer, suffix, shape) =>
      (s"${layer.name}.$suffix", shape, if (suffix == "bias") layer.biasInitializer else layer.initializer)
    })
    places.zip(tensors).map { case (place, (layer, suffix, _)) =>
      val (rate, decay) = multiplierOptions(suffix)
      place.copy(rate = layer.number(rate, 1, least = 0), decay = layer.number(decay, 1, least = 0))
    }
  }

  /** Options of every layer that has a parameter tensor of this suffix. */
  def multiplierOptions(suffix: String): (String, String) = (s"${suffix}_lr_mult", s"${suffix}_decay_mult")

  def statistics(layers: Seq[LayerSpec]): Seq[ParameterSpec] = packed(layers.flatMap { layer =>
    LayerKinds.statistics(layer).map { statistic =>
      (s"${layer.name}.${statistic.suffix}", Seq(statistic.length), if (statistic.initial == 1f) "one" else "zero")
    }
  })

  def length(layout: Seq[ParameterSpec]): Int = layout.lastOption.fold(0)(last => last.offset + last.length)

  private def packed(tensors: Seq[(String, Seq[Int], String)]): Seq[ParameterSpec] = {
    val offsets = tensors.scanLeft(0L)((offset, tensor) => offset + LayerKind.values(tensor._2))
    if (offsets.last > Int.MaxValue) {
      val (name, shape, _) = tensors.maxBy(tensor => LayerKind.values(tensor._2))
      throw new ConfigurationException(
        f"The model has ${offsets.last}%,d parameters, ${offsets.last * 4.0 / (1L << 30)}%.1f GiB in fp32 and as much again for each of gradient and " +
          f"momentum; at most ${Int.MaxValue}%,d fit. Its largest part is $name of ${shape.mkString(" × ")}. Make that layer smaller (model.hidden, or the model's specification)."
      )
    }
    tensors.zip(offsets).map { case ((name, shape, initializer), offset) =>
      ParameterSpec(name, shape, offset.toInt, initializer)
    }
  }
}

/** Builds a specification from the configuration: `softmax`, `mlp`, … */
trait ModelFamily extends Variant {
  def build(inputShape: Seq[Int], classes: Int, settings: Settings): ModelSpec

  /** The row's shape and the number of classes that its source is for; what `sparkdl-bench list models` shows it with. */
  def usual: Option[(Seq[Int], Int)] = Some((Seq(1, 28, 28), 10))
}

object ModelFamily {
  val syncBatchNorm: Key[Boolean] = Key.flag(
    "model.sync_batch_norm",
    "false",
    "Every batch normalisation of the model works over all workers' rows; false: as the model's layers say"
  )
  val dropout: Key[Option[Double]] = Key(
    "model.dropout",
    "auto",
    "auto, a number from 0 to below 1",
    "Rate of every dropout layer of the model, 0 for none; auto: as the model's layers say",
    text =>
      if (text == "auto") Some(None) else Try(text.toDouble).toOption.filter(rate => rate >= 0 && rate < 1).map(Some(_))
  )
  val keys: Seq[Key[_]] = Seq(syncBatchNorm, dropout)

  /** The model that the settings name, for these rows. */
  def of(settings: Settings, inputShape: Seq[Int], classes: Int): ModelSpec = {
    val spec =
      Variants.find[ModelFamily]("model", settings(RunKeys.model)).build(inputShape, classes, settings)
    val regularised = settings(dropout).fold(spec)(dropping(spec, _))
    if (settings(syncBatchNorm)) synchronised(regularised) else regularised
  }

  private def dropping(spec: ModelSpec, rate: Double): ModelSpec = {
    if (!spec.layers.exists(_.kind == DropoutKind.Name))
      throw new ConfigurationException(
        s"model.dropout=$rate is the rate of the model's dropout layers, and the model '${spec.name}' has no layer of kind '${DropoutKind.Name}'. " +
          "Set model.dropout=auto, or choose a model that has one, such as vgg-16 or alexnet."
      )
    spec.copy(layers = spec.layers.map { layer =>
      if (layer.kind == DropoutKind.Name) layer.copy(options = layer.options.updated(DropoutKind.Rate, rate)) else layer
    })
  }

  private def synchronised(spec: ModelSpec): ModelSpec = {
    if (!spec.layers.exists(_.kind == BatchNormKind.Name))
      throw new ConfigurationException(
        s"model.sync_batch_norm=true asks for batch normalisation over all workers' rows, and the model '${spec.name}' has no layer of kind " +
          s"'${BatchNormKind.Name}'. Set model.sync_batch_norm=false, or choose a model that has one, such as resnet-18 or vgg-16."
      )
    spec.copy(layers = spec.layers.map { layer =>
      if (layer.kind == BatchNormKind.Name) layer.copy(options = layer.options.updated(BatchNormKind.Sync, 1.0))
      else layer
    })
  }
}

final class ModelAxis extends Axis {
  def place = 6
  def name = "model"
  def key: Key[String] = RunKeys.model
  override def keys: Seq[Key[_]] = ModelFamily.keys
  def variants: Seq[Variant] = Variants.all[ModelFamily]
}
