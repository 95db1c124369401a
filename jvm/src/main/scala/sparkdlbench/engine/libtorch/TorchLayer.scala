package sparkdlbench.engine.libtorch

import org.bytedeco.pytorch.Tensor
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Settings, Variant, Variants}
import sparkdlbench.data.RowIds
import sparkdlbench.engine.RankGather
import sparkdlbench.model.{LayerSpec, ModelSpec, ParameterSpec}

/**
 * What a layer works on for a fixed number of rows. All are views of memory that the engine allocated once.
 *
 * @param inputs
 *   rows × input shape, each
 * @param output
 *   rows × output shape; the same memory as the input for a layer that works in place
 * @param outputGradient
 *   d loss / d output, rows × output shape
 * @param inputGradients
 *   where to write d loss / d input; None where there is nothing to write; the same memory as `outputGradient` for a layer in place
 */
private[libtorch] final case class LayerViews(
    inputs: IndexedSeq[Tensor],
    output: Tensor,
    outputGradient: Tensor,
    inputGradients: IndexedSeq[Option[Tensor]]
) {
  def input: Tensor = inputs.head
  def inputGradient: Option[Tensor] = inputGradients.head
  def rows: Long = output.size(0)
}

/** What a pass knows beside the values of its rows; written by the engine before each pass. */
private[libtorch] final class PassState {
  var training: Boolean = false
  var step: Long = 0
  var ids: RowIds = RowIds.counted
  var exchange: RankGather = RankGather.alone
}

/**
 * A layer's part of the model's buffers.
 *
 * @param index
 *   of the layer in the specification
 * @param bf16
 *   whether products are computed in bf16
 * @param parameters
 *   value and gradient by suffix (`weight`, `bias`)
 * @param statistics
 *   running statistics by suffix
 * @param inputShape
 *   of one row of its first input
 */
private[libtorch] final case class LayerContext(
    spec: LayerSpec,
    index: Int,
    inputShape: Seq[Int],
    maxRows: Int,
    seed: Long,
    bf16: Boolean,
    parameters: Map[String, (Tensor, Tensor)],
    statistics: Map[String, Tensor],
    state: PassState
)

/** A layer tied to the views of one row count. `backward` is called after `forward` of the same rows. */
private[libtorch] trait BoundLayer extends AutoCloseable {
  def forward(): Unit

  /** Writes the input gradients and overwrites the layer's part of the flat gradient. */
  def backward(): Unit
  def close(): Unit = ()
}

/**
 * One layer with its weights. Forward and backward are ATen's `out` variants where ATen has them: results go straight to where
 * they belong. What they allocate is freed when the pass ends.
 */
private[libtorch] trait TorchLayer extends AutoCloseable {
  def bind(views: LayerViews): BoundLayer

  /** What a rank without rows does in place of `forward` and `backward`, where other ranks count on it. */
  def forwardWithoutRows(): Unit = ()
  def backwardWithoutRows(): Unit = ()

  /** True where output may overwrite input (of a layer before that does not read its own output in `backward`). */
  def worksInPlace: Boolean = false

  /** True where `backward` reads the layer's output. */
  def backwardReadsOutput: Boolean = false

  /** True where a layer in place leaves the values as they are. */
  def keepsValues: Boolean = false

  /** True where the gradient of each input is the output's: an input gradient that shares its memory is not asked for. */
  def passesGradient: Boolean = false
  def close(): Unit = ()
}

/** How the engine computes one kind of layer; found by the kind's name. */
trait TorchLayerKind extends Variant {
  def doc: String = s"layers of kind $name in libtorch"
  private[libtorch] def load(context: LayerContext): TorchLayer
}

private[libtorch] object TorchLayer {
  private lazy val kinds: Map[String, TorchLayerKind] =
    Variants.all[TorchLayerKind].map(kind => kind.name -> kind).toMap

  def of(context: LayerContext): TorchLayer = kind(context.spec).load(context)

  def check(spec: ModelSpec): Unit = spec.layers.foreach(kind)

  private def kind(layer: LayerSpec): TorchLayerKind = kinds.getOrElse(
    layer.kind,
    throw new ConfigurationException(
      s"The engine 'libtorch' has no layer of kind '${layer.kind}' (layer '${layer.name}')." +
        s"${Settings.suggestion(layer.kind, kinds.keys.toSeq)} It has: ${kinds.keys.toSeq.sorted.mkString(", ")}."
    )
  )

  def suffix(parameter: ParameterSpec): String = parameter.name.drop(parameter.name.lastIndexOf('.') + 1)
}
