package sparkdlbench.engine.libtorch

import org.bytedeco.javacpp.BoolPointer
import org.bytedeco.pytorch.global.torch
import org.bytedeco.pytorch.{Tensor, TensorOptional}

/**
 * Convolution through ATen's own choice of implementation: oneDNN, or im2col and the BLAS where oneDNN is off. ATen has no variant that
 * writes to given memory: values and their gradients take over the memory of results where they can, and all else is copied.
 */
private[libtorch] final class AtenConvolution(context: LayerContext) extends AutoCloseable {
  private val (w, dw) = context.parameters("weight")
  private val bias = context.parameters.get("bias")
  private val optionalBias = bias.fold(new TensorOptional)(each => new TensorOptional(each._1))
  private val shape = ConvolutionShape.of(context)
  private val window = new WindowArguments(shape.window)
  private val groups = shape.groups.toLong
  private val biasSizes = bias.fold(Array.empty[Long])(_ => Array(w.size(0)))

  /** The layer over `views`, but for the parts that are products. */
  def bind(views: LayerViews, products: ProductParts): BoundLayer = new BoundLayer {
    private val inputGradient = views.inputGradient.filterNot(_ => products.inputGradient)
    private val ofWeights = !products.weightGradient
    private val wanted = new BoolPointer(3L)
    wanted.put(0L, inputGradient.isDefined).put(1L, ofWeights).put(2L, ofWeights && bias.isDefined)

    def forward(): Unit = if (!products.output) {
      val b = if (context.bf16 && bias.isDefined) new TensorOptional(product(bias.get._1)) else optionalBias
      val result =
        torch.conv2d(product(views.input), product(w), b, window.stride, window.padding, window.dilation, groups)
      Tensors.moved(result, views.output)
    }

    def backward(): Unit = if (inputGradient.isDefined || ofWeights) {
      val gradients = torch.convolution_backward(
        product(views.outputGradient),
        product(views.input),
        product(w),
        biasSizes,
        window.stride,
        window.padding,
        window.dilation,
        false,
        AtenConvolution.noOutputPadding,
        groups,
        wanted
      )
      inputGradient.foreach(Tensors.moved(gradients.get0(), _))
      if (ofWeights) {
        dw.copy_(gradients.get1())
        bias.foreach { case (_, db) => db.copy_(gradients.get2()) }
      }
    }

    override def close(): Unit = wanted.close()
  }

  /** What the products are made of. */
  private def product(values: Tensor): Tensor = if (context.bf16) ComputeType.rounded(values) else values

  def close(): Unit = optionalBias.close()
}

private object AtenConvolution { val noOutputPadding: Array[Long] = Array(0L, 0L) }
