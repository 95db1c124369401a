package sparkdlbench.engine.bigdl

import sparkdlbench.config.{Variant, Variants}
import sparkdlbench.data.Batch
import sparkdlbench.model.{LayerKinds, LayerSpec, ModelSpec}

import java.nio.FloatBuffer

/**
 * A layer where it stands in a model.
 *
 * @param index
 *   of the layer in the specification
 * @param inputShape
 *   of one row of its first input
 * @param needsInputGradient
 *   whether anything needs the gradient of its inputs
 * @param seed
 *   of dropout masks
 * @param statistics
 *   its running statistics by suffix, in the engine's buffer
 */
private[bigdl] final case class BigDlPlace(
    library: BigDlLibrary,
    layer: LayerSpec,
    index: Int,
    inputShape: Seq[Int],
    needsInputGradient: Boolean,
    seed: Long,
    statistics: Map[String, FloatBuffer]
)

/** BigDL's modules of one layer, one after the other: the first reads all inputs; without any the value is the input. */
private[bigdl] class BigDlLayer(val modules: Seq[BigDlModule]) {
  private var read: Seq[Seq[BigDlTensor]] = Nil

  def forward(inputs: Seq[BigDlTensor], batch: Batch, training: Boolean): BigDlTensor = {
    val values = modules.scanLeft(inputs)((given, module) => Seq(module.forward(given)))
    read = values.init
    values.last.head
  }

  /** The gradient of each input of the last `forward`; adds to the gradients of the parameters. */
  def backward(gradient: BigDlTensor): Seq[BigDlTensor] =
    modules.zip(read).foldRight(Seq(gradient)) { case ((module, inputs), after) =>
      module.backward(inputs, after.head)
    }
}

/**
 * A module with buffers that BigDL sizes for the rows of its first batch and never again: with another number of rows, as
 * in the last batch of an epoch, its backward pass would fail.
 */
private[bigdl] final class BigDlRowsLayer(module: BigDlModule, buffers: Seq[String]) extends BigDlLayer(Seq(module)) {
  private val sized = buffers.map(module.hidden)

  override def forward(inputs: Seq[BigDlTensor], batch: Batch, training: Boolean): BigDlTensor = {
    if (training) sized.flatMap(_.apply()).foreach(_.resizeRows(batch.rows))
    super.forward(inputs, batch, training)
  }
}

/** How BigDL computes one kind of layer; found by the kind's name. */
trait BigDlLayerKind extends Variant {
  def doc: String = s"layers of kind $name in BigDL"

  private[bigdl] def create(at: BigDlPlace): BigDlLayer

  /** Why BigDL cannot compute this layer of its kind, and what to set instead; None where it can. */
  private[bigdl] def refusal(layer: LayerSpec, inputShape: Seq[Int]): Option[String] = None

  /** fp32 values of one row that a layer keeps beside its output and the gradients of its inputs, an upper bound. */
  private[bigdl] def kept(layer: LayerSpec, output: Seq[Int]): Long = 0
}

private[bigdl] object BigDlLayers {
  private lazy val kinds: Map[String, BigDlLayerKind] =
    Variants.all[BigDlLayerKind].map(kind => kind.name -> kind).toMap

  /** Rows × channels × height × width. */
  val Format = "NCHW"

  /** Why it cannot compute a model; None where it can. */
  def refusal(spec: ModelSpec): Option[String] = spec.layers
    .find(layer => !kinds.contains(layer.kind))
    .map { layer =>
      s"The engine 'bigdl' has no layer of kind '${layer.kind}' (layer '${layer.name}'). It has: " +
        s"${kinds.keys.toSeq.sorted.mkString(", ")}. Choose another model, or engine.name=libtorch."
    }
    .orElse(
      spec.layers.indices.flatMap { index =>
        val layer = spec.layers(index)
        kinds(layer.kind).refusal(layer, inputShape(spec, index)).map { reason =>
          s"The engine 'bigdl' cannot compute layer '${layer.name}' of kind '${layer.kind}': $reason, or " +
            "engine.name=libtorch."
        }
      }.headOption
    )

  def create(at: BigDlPlace): BigDlLayer = kinds(at.layer.kind).create(at)

  /** fp32 values of one row that modules keep beside outputs and gradients; nothing for kinds that are refused. */
  def kept(spec: ModelSpec): Long = spec.layers
    .zip(spec.shapes.drop(1))
    .map { case (layer, output) => kinds.get(layer.kind).fold(0L)(_.kept(layer, output)) }
    .sum

  def inputShape(spec: ModelSpec, index: Int): Seq[Int] = spec.shapes(spec.graph(index).head)

  /** Rows of this shape, whatever they are now; the same memory. */
  def reshape(library: BigDlLibrary, shape: Seq[Int]): BigDlModule =
    library.create("Reshape", library.list(shape), java.lang.Boolean.TRUE)

  def flattened(at: BigDlPlace): Seq[BigDlModule] =
    if (at.inputShape.size == 1) Nil else Seq(reshape(at.library, Seq(at.inputShape.product)))

  def nothing(count: Int): Seq[Any] = Seq.fill[Any](count)(null)
}

final class BigDlLinear extends BigDlLayerKind {
  def name = "linear"
  private[bigdl] def create(at: BigDlPlace): BigDlLayer = {
    val sizes = Seq[Any](at.layer.int("in"), at.layer.int("out"), at.layer.flag("bias", default = true))
    // No regularisers, and tensors of its own.
    val linear = at.library.create("Linear", sizes ++ BigDlLayers.nothing(6): _*)
    new BigDlLayer(BigDlLayers.flattened(at) :+ linear)
  }
}

final class BigDlConvolution extends BigDlLayerKind {
  def name = "conv2d"
  private[bigdl] def create(at: BigDlPlace): BigDlLayer = {
    val channels = Seq[Any](at.layer.int("in"), at.layer.int("out"))
    val window = BigDlWindow.sizes(at.layer, defaultStride = 1)
    val bias = at.layer.flag("bias", default = true)
    val rest = Seq[Any](at.layer.int("groups", 1), at.needsInputGradient) ++ BigDlLayers.nothing(6) ++
      Seq[Any](bias, BigDlLayers.Format)
    new BigDlRowsLayer(
      at.library.create("SpatialConvolution", channels ++ window ++ rest: _*),
      "gradWeightMMInBatch" +: (if (bias) Seq("gradientBiasMT") else Nil)
    )
  }

  /** What it reads and its gradient, unfolded, and the gradient of the weights for each row. */
  override private[bigdl] def kept(layer: LayerSpec, output: Seq[Int]): Long = {
    val kernel = layer.int("kernel").toLong
    val unfolded = layer.int("in") * kernel * kernel * output(1) * output(2)
    2 * unfolded + LayerKinds.parameterShapes(layer).map(_._2.map(_.toLong).product).sum
  }
}

final class BigDlRelu extends BigDlLayerKind {
  def name = "relu"
  // Not in place: others may read its input.
  private[bigdl] def create(at: BigDlPlace): BigDlLayer = new BigDlLayer(Seq(at.library.create("ReLU", false)))
}

final class BigDlTanh extends BigDlLayerKind {
  def name = "tanh"
  private[bigdl] def create(at: BigDlPlace): BigDlLayer = new BigDlLayer(Seq(at.library.create("Tanh")))
}

final class BigDlSigmoid extends BigDlLayerKind {
  def name = "sigmoid"
  private[bigdl] def create(at: BigDlPlace): BigDlLayer = new BigDlLayer(Seq(at.library.create("Sigmoid")))
}

final class BigDlLogSoftmax extends BigDlLayerKind {
  def name = "log-softmax"
  private[bigdl] def create(at: BigDlPlace): BigDlLayer =
    new BigDlLayer(BigDlLayers.flattened(at) :+ at.library.create("LogSoftMax"))
}

final class BigDlFlatten extends BigDlLayerKind {
  def name = "flatten"
  private[bigdl] def create(at: BigDlPlace): BigDlLayer = new BigDlLayer(BigDlLayers.flattened(at))
}
