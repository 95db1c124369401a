package sparkdlbench.engine.bigdl

import sparkdlbench.config.{Variant, Variants}
import sparkdlbench.model.{LayerSpec, LocalResponseNormKind, ModelSpec, Window}

/**
 * A layer where it stands in a model.
 *
 * @param inputShape
 *   of one row
 * @param isFirst
 *   nothing needs the gradient of its input
 */
private[bigdl] final case class BigDlPlace(
    library: BigDlLibrary,
    layer: LayerSpec,
    inputShape: Seq[Int],
    isFirst: Boolean
)

/** How BigDL computes one kind of layer; found by the kind's name. */
trait BigDlLayerKind extends Variant {
  def doc: String = s"layers of kind $name in BigDL"

  private[bigdl] def create(at: BigDlPlace): Seq[BigDlModule]
}

private[bigdl] object BigDlLayers {
  private lazy val kinds: Map[String, BigDlLayerKind] =
    Variants.all[BigDlLayerKind].map(kind => kind.name -> kind).toMap

  /** Why it cannot compute a model; None where it can. Without layers that join values every graph is a chain. */
  def refusal(spec: ModelSpec): Option[String] =
    spec.layers.find(layer => !kinds.contains(layer.kind)).map { layer =>
      s"The engine 'bigdl' has no layer of kind '${layer.kind}' (layer '${layer.name}')" +
        s"${reasons.get(layer.kind).fold("")(": " + _)}. It has: ${kinds.keys.toSeq.sorted.mkString(", ")}. Choose another model, or engine.name=libtorch."
    }

  private val reasons = Map(
    "dropout" -> "BigDL draws masks of its own, which no other engine could repeat",
    "batch-norm" -> "its running statistics are not in BigDL's compact storage",
    "add" -> "it computes chains of layers",
    "concat" -> "it computes chains of layers"
  )

  /** The modules of each layer. */
  def create(library: BigDlLibrary, spec: ModelSpec): IndexedSeq[Seq[BigDlModule]] =
    spec.layers.indices.map { index =>
      val layer = spec.layers(index)
      kinds(layer.kind).create(BigDlPlace(library, layer, spec.shapes(index), index == 0))
    }

  def flattened(library: BigDlLibrary, inputShape: Seq[Int]): Seq[BigDlModule] =
    if (inputShape.size == 1) Nil
    else Seq(library.create("Reshape", library.list(Seq(inputShape.product)), java.lang.Boolean.TRUE))
}

final class BigDlLinear extends BigDlLayerKind {
  def name = "linear"
  private[bigdl] def create(at: BigDlPlace): Seq[BigDlModule] =
    BigDlLayers.flattened(at.library, at.inputShape) :+ at.library.create(
      "Linear",
      Seq[Any](at.layer.int("in"), at.layer.int("out"), at.layer.flag("bias", default = true)) ++ Seq.fill[Any](6)(
        null
      ): _*
    )
}

final class BigDlConvolution extends BigDlLayerKind {
  def name = "conv2d"
  private[bigdl] def create(at: BigDlPlace): Seq[BigDlModule] = {
    val window = Window.of(at.layer, defaultStride = 1)
    Seq(
      at.library.create(
        "SpatialConvolution",
        Seq[Any](at.layer.int("in"), at.layer.int("out")) ++ BigDlConvolution.sizes(window) ++
          Seq[Any](at.layer.int("groups", 1), !at.isFirst) ++ Seq.fill[Any](6)(null) ++
          Seq[Any](at.layer.flag("bias", default = true), BigDlConvolution.Format): _*
      )
    )
  }
}

private[bigdl] object BigDlConvolution {

  /** Rows × channels × height × width. */
  val Format = "NCHW"

  /** Kernel, stride and padding, each for width and height. */
  def sizes(window: Window): Seq[Any] =
    Seq[Any](window.kernel, window.kernel, window.stride, window.stride, window.padding, window.padding)
}

final class BigDlMaxPooling extends BigDlLayerKind {
  def name = "max-pool"
  private[bigdl] def create(at: BigDlPlace): Seq[BigDlModule] = {
    val window = Window.of(at.layer, defaultStride = 0)
    Seq(
      at.library.create(
        "SpatialMaxPooling",
        BigDlConvolution.sizes(window) ++ Seq[Any](window.ceil, BigDlConvolution.Format): _*
      )
    )
  }
}

final class BigDlAveragePooling extends BigDlLayerKind {
  def name = "avg-pool"
  private[bigdl] def create(at: BigDlPlace): Seq[BigDlModule] = {
    val window = Window.of(at.layer, defaultStride = 0)
    // Not global; padding counts; sums are divided.
    val flags = Seq[Any](false, window.ceil, true, true, BigDlConvolution.Format)
    Seq(at.library.create("SpatialAveragePooling", BigDlConvolution.sizes(window) ++ flags: _*))
  }
}

final class BigDlLocalResponseNorm extends BigDlLayerKind {
  def name = "local-response-norm"
  private[bigdl] def create(at: BigDlPlace): Seq[BigDlModule] = Seq(
    at.library.create(
      "SpatialCrossMapLRN",
      at.layer.int("size", LocalResponseNormKind.Size),
      at.layer.number("alpha", LocalResponseNormKind.Alpha),
      at.layer.number("beta", LocalResponseNormKind.Beta),
      at.layer.number("k", LocalResponseNormKind.K),
      BigDlConvolution.Format
    )
  )
}

final class BigDlRelu extends BigDlLayerKind {
  def name = "relu"
  private[bigdl] def create(at: BigDlPlace): Seq[BigDlModule] =
    Seq(at.library.create("ReLU", false))
}

final class BigDlTanh extends BigDlLayerKind {
  def name = "tanh"
  private[bigdl] def create(at: BigDlPlace): Seq[BigDlModule] =
    Seq(at.library.create("Tanh"))
}

final class BigDlSigmoid extends BigDlLayerKind {
  def name = "sigmoid"
  private[bigdl] def create(at: BigDlPlace): Seq[BigDlModule] =
    Seq(at.library.create("Sigmoid"))
}

final class BigDlLogSoftmax extends BigDlLayerKind {
  def name = "log-softmax"
  private[bigdl] def create(at: BigDlPlace): Seq[BigDlModule] =
    BigDlLayers.flattened(at.library, at.inputShape) :+ at.library.create("LogSoftMax")
}

final class BigDlFlatten extends BigDlLayerKind {
  def name = "flatten"
  private[bigdl] def create(at: BigDlPlace): Seq[BigDlModule] =
    BigDlLayers.flattened(at.library, at.inputShape)
}
