package sparkdlbench.engine.libtorch

import org.bytedeco.pytorch.global.torch
import org.bytedeco.pytorch.{Scalar, Tensor}
import sparkdlbench.ConfigurationException
import sparkdlbench.model.{LayerSpec, ParameterSpec}

/**
 * What a layer works on for a fixed number of rows. All are views of memory that the engine allocated once.
 *
 * @param input
 *   rows × input shape
 * @param output
 *   rows × output shape; the same memory as `input` for a layer that works in place
 * @param outputGradient
 *   d loss / d output, rows × output shape
 * @param inputGradient
 *   where to write d loss / d input; None for the first layer; the same memory as `outputGradient` for a layer in place
 */
private[libtorch] final case class LayerViews(
    input: Tensor,
    output: Tensor,
    outputGradient: Tensor,
    inputGradient: Option[Tensor]
)

/** A layer tied to the views of one row count. `backward` is called after `forward` of the same rows. */
private[libtorch] trait BoundLayer extends AutoCloseable {
  def forward(): Unit

  /** Writes the input gradient and overwrites the layer's part of the flat gradient. */
  def backward(): Unit
}

/**
 * One kind of layer with its weights. Forward and backward are ATen's `out` variants: results go straight to where they
 * belong, and nothing large is allocated in a step.
 */
private[libtorch] trait TorchLayer extends AutoCloseable {
  def bind(views: LayerViews): BoundLayer

  /** True where output may overwrite input (of a layer before that does not read its own output in `backward`). */
  def worksInPlace: Boolean = false

  /** True where `backward` reads the layer's output. */
  def backwardReadsOutput: Boolean = false
}

private[libtorch] object TorchLayer {

  /** Parameter tensors of one layer, value and gradient, by suffix (`weight`, `bias`). */
  type Parameters = Map[String, (Tensor, Tensor)]

  def of(layer: LayerSpec, parameters: Parameters): TorchLayer = layer.kind match {
    case "linear" => new LinearLayer(parameters("weight"), parameters("bias"))
    case "relu" => new ReluLayer
    case "tanh" => new TanhLayer
    case other =>
      throw new ConfigurationException(
        s"The engine 'libtorch' has no layer of kind '$other' (layer '${layer.name}'); it has: linear, relu, tanh."
      )
  }

  def suffix(parameter: ParameterSpec): String = parameter.name.drop(parameter.name.lastIndexOf('.') + 1)
}

/** Y = X·Wᵀ + b; dX = dY·W, dW = dYᵀ·X, db = column sums of dY. X: (rows, in), W: (out, in), Y: (rows, out). */
private[libtorch] final class LinearLayer(weight: (Tensor, Tensor), bias: (Tensor, Tensor)) extends TorchLayer {
  private val (w, dw) = weight
  private val (b, db) = bias
  private val wTransposed = w.t()
  private val inputs = w.size(1)

  def bind(views: LayerViews): BoundLayer = new BoundLayer {
    private val y = views.output
    private val dy = views.outputGradient
    private val x = views.input.view(-1L, inputs)
    private val dx = views.inputGradient.map(_.view(-1L, inputs))
    private val dyTransposed = dy.t()

    def forward(): Unit = { torch.addmm_out(y, b, x, wTransposed); () }

    def backward(): Unit = {
      dx.foreach(torch.mm_out(_, dy, w))
      torch.mm_out(dw, dyTransposed, x)
      torch.sum_out(db, dy, 0L)
      ()
    }

    def close(): Unit = (Seq(x, dyTransposed) ++ dx).foreach(_.close())
  }

  def close(): Unit = wTransposed.close()
}

/** max(x, 0); dx = dy where the output is above 0, else 0. */
private[libtorch] final class ReluLayer extends TorchLayer {
  private val threshold = new Scalar(0.0f)
  override def worksInPlace: Boolean = true
  override def backwardReadsOutput: Boolean = true

  def bind(views: LayerViews): BoundLayer = new BoundLayer {
    def forward(): Unit = { torch.clamp_min_out(views.output, views.input, threshold); () }
    def backward(): Unit =
      views.inputGradient.foreach(torch.threshold_backward_out(_, views.outputGradient, views.output, threshold))
    def close(): Unit = ()
  }

  def close(): Unit = threshold.close()
}

/** tanh(x); dx = dy · (1 − output²). */
private[libtorch] final class TanhLayer extends TorchLayer {
  override def worksInPlace: Boolean = true
  override def backwardReadsOutput: Boolean = true

  def bind(views: LayerViews): BoundLayer = new BoundLayer {
    def forward(): Unit = { torch.tanh_out(views.output, views.input); () }
    def backward(): Unit = views.inputGradient.foreach(torch.tanh_backward_out(_, views.outputGradient, views.output))
    def close(): Unit = ()
  }

  def close(): Unit = ()
}
