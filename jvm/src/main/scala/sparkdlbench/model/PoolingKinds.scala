package sparkdlbench.model

import sparkdlbench.common.ConfigurationException

/** Pooling with a square window; `ceil` = 1 is Caffe's rule that a window cut off by the edge counts. */
private[model] trait PoolingKind extends LayerKind {
  override def options: Seq[String] = Seq("kernel", "stride", "padding", "ceil")

  def outputShape(layer: LayerSpec, inputs: Seq[Seq[Int]]): Seq[Int] = {
    val (channels, height, width) = LayerKind.image(layer, inputs.head)
    val window = Window.of(layer, defaultStride = 0)
    if (window.padding > window.kernel / 2)
      throw new ConfigurationException(
        s"Layer '${layer.name}' of kind '${layer.kind}' has padding=${window.padding}, and at most half of its kernel of ${window.kernel} is " +
          s"valid; set padding to ${window.kernel / 2} or less."
      )
    Seq(channels, window.size(height), window.size(width))
  }

  override def flops(layer: LayerSpec, inputs: Seq[Seq[Int]], output: Seq[Int]): Long =
    LayerKind.values(output) * layer.int("kernel") * layer.int("kernel")
}

/** The largest value in each window. */
final class MaxPoolKind extends PoolingKind {
  def name = "max-pool"
  def doc = "The largest value in each window"
}

/** The mean of each window; padding counts as zeros, what lies beyond the padding does not count. */
final class AvgPoolKind extends PoolingKind {
  def name = "avg-pool"
  def doc = "The mean of each window, padding included"
}

/** The mean of each channel over all of height and width. */
final class GlobalAvgPoolKind extends LayerKind {
  def name = "global-avg-pool"
  def doc = "The mean of each channel; a row of channels × height × width becomes a row of channels"
  def outputShape(layer: LayerSpec, inputs: Seq[Seq[Int]]): Seq[Int] = Seq(LayerKind.image(layer, inputs.head)._1)
  override def flops(layer: LayerSpec, inputs: Seq[Seq[Int]], output: Seq[Int]): Long = LayerKind.values(inputs.head)
}
