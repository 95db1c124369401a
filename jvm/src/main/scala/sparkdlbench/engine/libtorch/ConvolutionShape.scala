package sparkdlbench.engine.libtorch

import sparkdlbench.model.Window

/**
 * What a convolution works on, of one row.
 *
 * @param outputs
 *   channels of the output, as `inputs` of the input
 * @param groups
 *   of channels that see only each other
 */
private[libtorch] final case class ConvolutionShape(
    inputs: Int,
    height: Int,
    width: Int,
    outputs: Int,
    window: Window,
    groups: Int
) {
  val outputHeight: Int = window.size(height)
  val outputWidth: Int = window.size(width)

  /** Places that the window takes. */
  def pixels: Int = outputHeight * outputWidth

  /** Values under the window. */
  def terms: Int = inputs / groups * window.kernel * window.kernel
}

private[libtorch] object ConvolutionShape {
  def of(context: LayerContext): ConvolutionShape = {
    val spec = context.spec
    ConvolutionShape(
      context.inputShape(0),
      context.inputShape(1),
      context.inputShape(2),
      spec.int("out"),
      Window.of(spec, defaultStride = 1),
      spec.int("groups", 1)
    )
  }
}

/** Which parts of a convolution are products of matrices (`ConvolutionProducts`); the others are ATen's convolutions. */
private[libtorch] final case class ProductParts(output: Boolean, inputGradient: Boolean, weightGradient: Boolean) {
  def any: Boolean = output || inputGradient || weightGradient
  def all: Boolean = output && inputGradient && weightGradient
}

private[libtorch] object ProductParts {
  val none: ProductParts = ProductParts(output = false, inputGradient = false, weightGradient = false)
  val every: ProductParts = ProductParts(output = true, inputGradient = true, weightGradient = true)

  /** Values of a vector register, by which oneDNN's kernels take channels. */
  private val Block = 16

  /** oneDNN computes with channels filled up to whole blocks: below this part of them in use, the products take less. */
  private val UsedBlocks = 0.6

  /** With so few products for each value that is read, the convolution of few channels waits for memory. */
  private val FewTerms = 160

  /** Rows × pixels up to which the order of the weights costs more than their gradient, where the weights are not few. */
  private val FewPixels = 512
  private val ManyWeights = 1 << 18

  /**
   * Where products were faster than oneDNN's convolutions, one thread of an Intel Xeon with AVX-512, oneDNN 3.13 (the table is in the
   * performance notes). A matter of shapes alone: all ranks, and each start of the same run, compute alike.
   *
   * @param rows
   *   of the pass
   */
  def of(shape: ConvolutionShape, rows: Long): ProductParts = {
    import shape._
    if (groups > 1) none
    else if (window.kernel == 1) if (window.padding == 0) every else none
    else {
      val few = inputs < Block
      val unused = !few && used(inputs) * used(outputs) < UsedBlocks
      val weightsPrevail = rows * pixels <= FewPixels && terms.toLong * outputs >= ManyWeights
      ProductParts(
        output = unused || (few && terms <= FewTerms),
        inputGradient = false,
        weightGradient = unused || weightsPrevail
      )
    }
  }

  private def used(channels: Int): Double = channels.toDouble / ((channels + Block - 1) / Block * Block)
}
