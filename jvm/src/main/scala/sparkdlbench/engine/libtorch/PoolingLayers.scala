package sparkdlbench.engine.libtorch

import org.bytedeco.pytorch.global.torch
import org.bytedeco.pytorch.{LongOptional, Scalar, ScalarTypeOptional, Tensor}
import sparkdlbench.model.Window

final class TorchMaxPool extends TorchLayerKind {
  def name = "max-pool"
  private[libtorch] def load(context: LayerContext): TorchLayer =
    if (ChannelsLastMaxPool.fits(context)) new ChannelsLastMaxPool(context) else new MaxPoolLayer(context)
}

final class TorchAvgPool extends TorchLayerKind {
  def name = "avg-pool"
  private[libtorch] def load(context: LayerContext): TorchLayer = new AvgPoolLayer(context)
}

final class TorchGlobalAvgPool extends TorchLayerKind {
  def name = "global-avg-pool"
  private[libtorch] def load(context: LayerContext): TorchLayer = new GlobalAvgPoolLayer(context)
}

/** A window as ATen takes it. */
private[libtorch] final class WindowArguments(window: Window) {
  val kernel: Array[Long] = Array.fill(2)(window.kernel.toLong)
  val stride: Array[Long] = Array.fill(2)(window.stride.toLong)
  val padding: Array[Long] = Array.fill(2)(window.padding.toLong)
  val dilation: Array[Long] = Array(1L, 1L)
  def ceil: Boolean = window.ceil

  /** Of (channels, height, width). */
  def outputShape(shape: Seq[Int]): Seq[Int] = shape.head +: shape.tail.map(window.size)

  /** Writes the largest value under the window at each place, and which of the channel's values it is. */
  def max(output: Tensor, indices: Tensor, input: Tensor): Unit = {
    torch.max_pool2d_with_indices_out(output, indices, input, kernel, stride, padding, dilation, ceil)
    ()
  }

  /** Writes to `dx` the gradient that goes to where each window's maximum was: `indices` within the channel. */
  def maxBackward(dx: Tensor, views: LayerViews, indices: Tensor): Unit = {
    torch.max_pool2d_with_indices_backward_out(
      dx,
      views.outputGradient,
      views.input,
      kernel,
      stride,
      padding,
      dilation,
      ceil,
      indices
    )
    ()
  }
}

private[libtorch] object WindowArguments {

  /** A pooling layer's windows lie side by side where it says no stride. */
  def ofPooling(context: LayerContext): WindowArguments =
    new WindowArguments(Window.of(context.spec, defaultStride = 0))
}

/** The gradient goes to where each window's maximum was. */
private[libtorch] final class MaxPoolLayer(context: LayerContext) extends TorchLayer {
  private val window = WindowArguments.ofPooling(context)

  def bind(views: LayerViews): BoundLayer = new BoundLayer {
    private val indices = Tensors.emptyLongs((0L until views.output.dim()).map(views.output.size(_)): _*)

    def forward(): Unit = window.max(views.output, indices, views.input)
    def backward(): Unit = views.inputGradient.foreach(window.maxBackward(_, views, indices))

    override def close(): Unit = indices.close()
  }
}

/** Padding counts as zeros, what lies beyond it does not: Caffe's rule. */
private[libtorch] final class AvgPoolLayer(context: LayerContext) extends TorchLayer {
  private val window = WindowArguments.ofPooling(context)
  private val ownDivisor = new LongOptional

  def bind(views: LayerViews): BoundLayer = new BoundLayer {
    def forward(): Unit = {
      torch.avg_pool2d_out(
        views.output,
        views.input,
        window.kernel,
        window.stride,
        window.padding,
        window.ceil,
        true,
        ownDivisor
      )
      ()
    }

    def backward(): Unit = views.inputGradient.foreach { dx =>
      torch.avg_pool2d_backward_out(
        dx,
        views.outputGradient,
        views.input,
        window.kernel,
        window.stride,
        window.padding,
        window.ceil,
        true,
        ownDivisor
      )
    }
  }

  override def close(): Unit = ownDivisor.close()
}

/** dx = dy / (height · width), everywhere. */
private[libtorch] final class GlobalAvgPoolLayer(context: LayerContext) extends TorchLayer {
  private val area = new Scalar(context.inputShape(1).toFloat * context.inputShape(2))
  private val sameType = new ScalarTypeOptional

  def bind(views: LayerViews): BoundLayer = new BoundLayer {
    private val spread = views.outputGradient.view(views.rows, context.inputShape.head.toLong, 1L, 1L)

    def forward(): Unit = { torch.mean_out(views.output, views.input, Array(2L, 3L), false, sameType); () }
    def backward(): Unit = views.inputGradient.foreach(_.copy_(spread).div_(area))
    override def close(): Unit = spread.close()
  }

  override def close(): Unit = Seq(area, sameType).foreach(_.close())
}
