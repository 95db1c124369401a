package sparkdlbench.engine.libtorch

import org.bytedeco.javacpp.BoolPointer
import org.bytedeco.pytorch.global.torch
import org.bytedeco.pytorch.{Tensor, TensorOptional}

final class TorchConvolution extends TorchLayerKind {
  def name = "conv2d"
  private[libtorch] def load(context: LayerContext): TorchLayer =
    if (PointwiseConvolutionLayer.fits(context)) new PointwiseConvolutionLayer(context)
    else new ConvolutionLayer(context)
}

/**
 * Convolution through ATen's own choice of implementation: oneDNN, or im2col and the BLAS where oneDNN is off. ATen has no variant that
 * writes to given memory without a copy, so results are copied to where they belong.
 */
private[libtorch] final class ConvolutionLayer(context: LayerContext) extends TorchLayer {
  private val (w, dw) = context.parameters("weight")
  private val bias = context.parameters.get("bias")
  private val optionalBias = bias.fold(new TensorOptional)(each => new TensorOptional(each._1))
  private val stride = Array.fill(2)(context.spec.int("stride", 1).toLong)
  private val padding = Array.fill(2)(context.spec.int("padding", 0, least = 0).toLong)
  private val dilation = Array(1L, 1L)
  private val groups = context.spec.int("groups", 1).toLong
  private val biasSizes = bias.fold(Array.empty[Long])(_ => Array(w.size(0)))

  def bind(views: LayerViews): BoundLayer = new BoundLayer {
    private val wanted = new BoolPointer(3L)
    wanted.put(0L, views.inputGradient.isDefined).put(1L, true).put(2L, bias.isDefined)

    def forward(): Unit = {
      val b = if (context.bf16 && bias.isDefined) new TensorOptional(product(bias.get._1)) else optionalBias
      views.output.copy_(torch.conv2d(product(views.input), product(w), b, stride, padding, dilation, groups))
      ()
    }

    def backward(): Unit = {
      val gradients = torch.convolution_backward(
        product(views.outputGradient),
        product(views.input),
        product(w),
        biasSizes,
        stride,
        padding,
        dilation,
        false,
        ConvolutionLayer.noOutputPadding,
        groups,
        wanted
      )
      views.inputGradient.foreach(_.copy_(gradients.get0()))
      dw.copy_(gradients.get1())
      bias.foreach { case (_, db) => db.copy_(gradients.get2()) }
    }

    override def close(): Unit = wanted.close()
  }

  /** What the products are made of. */
  private def product(values: Tensor): Tensor = if (context.bf16) ComputeType.rounded(values) else values

  override def close(): Unit = optionalBias.close()
}

private object ConvolutionLayer { val noOutputPadding: Array[Long] = Array(0L, 0L) }
