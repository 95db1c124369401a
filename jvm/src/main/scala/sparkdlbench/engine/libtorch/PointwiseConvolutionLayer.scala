package sparkdlbench.engine.libtorch

import org.bytedeco.pytorch.global.torch
import org.bytedeco.pytorch.{Scalar, ScalarTypeOptional, Tensor}
import sparkdlbench.model.Window

/**
 * A convolution of 1 × 1 as the product that it is, of each row n: Y[n] = W·X[n] + b; dX[n] = Wᵀ·dY[n], dW = Σ dY[n]·X[n]ᵀ, db = Σ dY.
 * X[n]: (in, pixels), W: (out, in), Y[n]: (out, pixels). The BLAS writes where results belong; ATen's convolutions allocate them first, and with
 * one thread and few rows compute these same products.
 */
private[libtorch] final class PointwiseConvolutionLayer(context: LayerContext) extends TorchLayer {
  private val (w, dw) = context.parameters("weight")
  private val (outputs, inputs) = (w.size(0), w.size(1))
  private val matrix = w.view(outputs, inputs)
  private val gradientMatrix = dw.view(outputs, inputs)
  private val bias = context.parameters.get("bias")
  private val biasColumn = bias.map(_._1.view(outputs, 1L))
  private val one = new Scalar(1.0f)
  private val sameType = new ScalarTypeOptional

  def bind(views: LayerViews): BoundLayer = new BoundLayer {
    private val pixels = context.inputShape.tail.map(_.toLong).product
    private val x = views.input.view(views.rows, inputs, pixels)
    private val y = views.output.view(views.rows, outputs, pixels)
    private val dy = views.outputGradient.view(views.rows, outputs, pixels)
    private val dx = views.inputGradient.map(_.view(views.rows, inputs, pixels))
    // The same weights for every row.
    private val ofRows = matrix.expand(views.rows, outputs, inputs)
    private val transposedOfRows = ofRows.transpose(1L, 2L)
    private val gradientOfRow: IndexedSeq[Tensor] = (0L until views.rows).map(dy.select(0L, _))
    private val inputOfRow: IndexedSeq[Tensor] = (0L until views.rows).map { row =>
      val plain = x.select(0L, row)
      try plain.t()
      finally plain.close()
    }

    def forward(): Unit = {
      torch.bmm_out(y, ofRows, x)
      biasColumn.foreach(y.add_)
    }

    def backward(): Unit = {
      dx.foreach(torch.bmm_out(_, transposedOfRows, dy))
      torch.mm_out(gradientMatrix, gradientOfRow.head, inputOfRow.head)
      var row = 1
      while (row < gradientOfRow.size) {
        torch.addmm_out(gradientMatrix, gradientMatrix, gradientOfRow(row), inputOfRow(row), one, one)
        row += 1
      }
      bias.foreach { case (_, db) => torch.sum_out(db, dy, PointwiseConvolutionLayer.RowsAndPixels, false, sameType) }
    }

    override def close(): Unit =
      (gradientOfRow ++ inputOfRow ++ dx ++ Seq(x, y, dy, transposedOfRows, ofRows)).foreach(_.close())
  }

  override def close(): Unit = {
    (Seq(matrix, gradientMatrix) ++ biasColumn).foreach(_.close())
    Seq(one, sameType).foreach(_.close())
  }
}

private[libtorch] object PointwiseConvolutionLayer {

  /**
   * Rows of fewer pixels make products too narrow: 49 cost a third more than the convolution (2048 to 512 channels, Zen 4). They go side
   * by side in `ConvolutionProducts`.
   */
  private val LeastPixels = 64
  private val RowsAndPixels = Array(0L, 2L)

  def fits(context: LayerContext): Boolean = {
    val shape = ConvolutionShape.of(context)
    !context.bf16 && shape.groups == 1 && shape.pixels >= LeastPixels &&
    shape.window == Window(kernel = 1, stride = 1, padding = 0, ceil = false)
  }
}
