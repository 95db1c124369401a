package sparkdlbench.model

import sparkdlbench.common.ConfigurationException

/**
 * Two-dimensional cross-correlation, as every framework calls convolution; W is (out, in / groups, kernel, kernel), b is (out).
 * Square kernels, the same stride and padding in both directions.
 */
final class ConvolutionKind extends LayerKind {
  def name = "conv2d"
  def doc = "Convolution over height and width, with stride, zero padding and groups"
  override def options: Seq[String] = Seq("in", "out", "kernel", "stride", "padding", "groups", "bias")

  override def parameterShapes(layer: LayerSpec): Seq[(String, Seq[Int])] = {
    val (in, out, kernel, groups) =
      (layer.int("in"), layer.int("out"), layer.int("kernel"), layer.int("groups", 1))
    if (in % groups != 0 || out % groups != 0)
      throw new ConfigurationException(
        s"Layer '${layer.name}' of kind 'conv2d' has groups=$groups, which must divide its options in=$in and out=$out."
      )
    ("weight" -> Seq(out, in / groups, kernel, kernel)) +:
      (if (layer.flag("bias", default = true)) Seq("bias" -> Seq(out)) else Nil)
  }

  def outputShape(layer: LayerSpec, inputs: Seq[Seq[Int]]): Seq[Int] = {
    val (channels, height, width) = LayerKind.image(layer, inputs.head)
    if (channels != layer.int("in")) throw LayerKind.mismatch(layer, "in", layer.int("in"), channels, "channels")
    val window = Window.of(layer, defaultStride = 1)
    Seq(layer.int("out"), window.size(height), window.size(width))
  }

  override def flops(layer: LayerSpec, inputs: Seq[Seq[Int]], output: Seq[Int]): Long =
    2L * LayerKind.values(parameterShapes(layer).head._2) * output(1) * output(2)
}

/**
 * A square window that slides over height and width.
 *
 * @param ceil
 *   a last window that is cut off by the edge counts too, as in Caffe
 */
final case class Window(kernel: Int, stride: Int, padding: Int, ceil: Boolean) {

  /** Places that the window takes along `length` values; less than 1 where it does not fit. */
  def size(length: Int): Int = {
    val way = length + 2 * padding - kernel
    if (way < 0) 0
    else {
      val rounded = if (ceil) (way + stride - 1) / stride else way / stride
      // A window that would begin in the padding behind the end holds nothing.
      if (ceil && rounded * stride >= length + padding) rounded else rounded + 1
    }
  }
}

object Window {

  /** From a layer's options kernel, stride, padding and ceil. */
  def of(layer: LayerSpec, defaultStride: Int): Window = {
    val kernel = layer.int("kernel")
    val stride = layer.int("stride", if (defaultStride == 0) kernel else defaultStride)
    Window(kernel, stride, layer.int("padding", 0, least = 0), layer.flag("ceil", default = false))
  }
}
