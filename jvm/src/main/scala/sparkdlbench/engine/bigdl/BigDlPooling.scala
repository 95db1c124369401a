package sparkdlbench.engine.bigdl

import sparkdlbench.model.{LayerSpec, Window}

final class BigDlMaxPooling extends BigDlLayerKind {
  def name = "max-pool"
  private[bigdl] def create(at: BigDlPlace): BigDlLayer = {
    val rounding = Seq[Any](BigDlWindow.of(at.layer).ceil, BigDlLayers.Format)
    new BigDlLayer(Seq(at.library.create("SpatialMaxPooling", BigDlWindow.sizes(at.layer) ++ rounding: _*)))
  }
  override private[bigdl] def refusal(layer: LayerSpec, inputShape: Seq[Int]): Option[String] =
    BigDlWindow.refusal(layer, inputShape)

  /** Where the maxima were. */
  override private[bigdl] def kept(layer: LayerSpec, output: Seq[Int]): Long = output.map(_.toLong).product
}

final class BigDlAveragePooling extends BigDlLayerKind {
  def name = "avg-pool"
  private[bigdl] def create(at: BigDlPlace): BigDlLayer = {
    // Not global; padding counts; sums are divided.
    val flags = Seq[Any](false, BigDlWindow.of(at.layer).ceil, true, true, BigDlLayers.Format)
    new BigDlLayer(Seq(at.library.create("SpatialAveragePooling", BigDlWindow.sizes(at.layer) ++ flags: _*)))
  }
  override private[bigdl] def refusal(layer: LayerSpec, inputShape: Seq[Int]): Option[String] =
    BigDlWindow.refusal(layer, inputShape)
}

final class BigDlGlobalAveragePooling extends BigDlLayerKind {
  def name = "global-avg-pool"
  private[bigdl] def create(at: BigDlPlace): BigDlLayer = {
    // A window of its own finding, without padding; nothing to round; sums are divided.
    val arguments = Seq[Any](1, 1, 1, 1, 0, 0, true, false, true, true, BigDlLayers.Format)
    val pooling = at.library.create("SpatialAveragePooling", arguments: _*)
    new BigDlLayer(Seq(pooling, BigDlLayers.reshape(at.library, at.inputShape.take(1))))
  }
}

private[bigdl] object BigDlWindow {

  /** Of a pooling layer. */
  def of(layer: LayerSpec): Window = Window.of(layer, defaultStride = 0)

  /** Kernel, stride and padding, each for width and height. */
  def sizes(layer: LayerSpec, defaultStride: Int = 0): Seq[Any] = {
    val window = Window.of(layer, defaultStride)
    Seq[Any](window.kernel, window.kernel, window.stride, window.stride, window.padding, window.padding)
  }

  /**
   * Where BigDL's size of a pooling's output is another than the specification's. It lets windows begin behind the edge
   * where there is no padding, and gives up rounding up, for the height too, after a first batch whose width needs none.
   */
  def refusal(layer: LayerSpec, inputShape: Seq[Int]): Option[String] = {
    val window = of(layer)
    val (height, width) = (inputShape(1), inputShape(2))
    val roundsUp = window.ceil && (window.padding > 0 || (width - window.kernel) % window.stride != 0)
    val (expected, found) = (inputShape.tail.map(window.size), inputShape.tail.map(own(window, roundsUp, _)))
    if (expected == found) None
    else
      Some(
        s"with ceil=1, kernel=${window.kernel}, stride=${window.stride} and padding=${window.padding} on rows of " +
          s"$height×$width BigDL would give ${found.mkString("×")} values, if only from its second batch on, where " +
          s"${expected.mkString("×")} are due. Set ceil=0, take rows that are as high as wide"
      )
  }

  private def own(window: Window, roundsUp: Boolean, length: Int): Int = {
    val way = length + 2 * window.padding - window.kernel
    val places = (if (roundsUp) (way + window.stride - 1) / window.stride else way / window.stride) + 1
    if (window.padding > 0 && (places - 1) * window.stride >= length + window.padding) places - 1 else places
  }
}
