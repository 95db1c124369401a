package sparkdlbench.engine.libtorch

import org.bytedeco.pytorch.global.torch
import org.bytedeco.pytorch.{LongOptional, Scalar, ScalarTypeOptional, Tensor}

/**
 * A convolution as products of matrices over unfolded inputs (im2col; Chellapilla, Puri, Simard: High performance convolutional neural
 * networks for document processing, 2006). X: (terms, rows × pixels), below each place of the window the values under it; W:
 * (out, terms); Y: (out, rows × pixels). Y = W·X + b; dW = dY·Xᵀ, db = Σ dY; and of windows of one value, none of which overlap, dX = Wᵀ·dY.
 *
 * Inputs are unfolded by strided copies, two to six times as fast as ATen's im2col, and by chunks of rows, which bounds the memory. The
 * gradient of the weights is written where it belongs.
 *
 * @param chunkValues
 *   most values of a chunk's unfolded input, unless one row alone has more
 */
private[libtorch] final class ConvolutionProducts(
    context: LayerContext,
    chunkValues: Long = ConvolutionProducts.ChunkValues
) extends AutoCloseable {
  private val shape = ConvolutionShape.of(context)
  import shape._
  require(groups == 1, s"groups $groups")
  private val (kernel, stride, padding) = (window.kernel.toLong, window.stride.toLong, window.padding)
  private val (paddedHeight, paddedWidth) = (height + 2L * padding, width + 2L * padding)
  private val rowChunks = new RowChunks(context.maxRows, terms.toLong * pixels, chunkValues)
  private val chunkRows = rowChunks.most

  private val own = new Kept
  private val weights = own(context.parameters("weight")._1.view(outputs.toLong, terms.toLong))
  private val transposedWeights = own(weights.t())
  private val weightGradient = own(context.parameters("weight")._2.view(outputs.toLong, terms.toLong))
  private val bias = context.parameters.get("bias")
  private val biasColumn = bias.map(each => own(each._1.view(outputs.toLong, 1L)))
  private val one = own(new Scalar(1.0f))
  private val sameType = own(new ScalarTypeOptional)

  // Of the largest chunk; passes of all numbers of rows take turns in it.
  private lazy val unfoldedMemory = own(torch.empty(terms * chunkRows * pixels))
  private lazy val placedMemory = own(torch.empty(terms * chunkRows * pixels))
  private lazy val resultMemory = own(torch.empty(outputs * chunkRows * pixels))
  private lazy val paddedMemory = own(torch.zeros(chunkRows, inputs.toLong, paddedHeight, paddedWidth))

  /** The parts of the layer over `views` that are products. The input's gradient can be one where the window is one value without padding. */
  def bind(views: LayerViews, parts: ProductParts): BoundLayer = new BoundLayer {
    require(!parts.inputGradient || (kernel == 1 && padding == 0), s"input gradient of $window")
    private val kept = new Kept
    private val inputGradient = views.inputGradient.filter(_ => parts.inputGradient)
    private val chunks: IndexedSeq[Chunk] = rowChunks.of(views.rows)(new Chunk(_, _))
    private val gradientPixels = kept(views.outputGradient.view(views.rows, outputs.toLong, pixels.toLong))

    def forward(): Unit = if (parts.output) chunks.foreach { chunk =>
      chunk.unfold()
      torch.mm_out(chunk.result, weights, chunk.unfolded)
      biasColumn match {
        case Some(column) => torch.add_out(chunk.output, chunk.resultByRow, column)
        case None => chunk.output.copy_(chunk.resultByRow)
      }
    }

    def backward(): Unit = {
      // What forward unfolded is still there.
      val unfolded = parts.output && chunks.size == 1
      chunks.foreach { chunk =>
        if (parts.weightGradient || inputGradient.isDefined) chunk.resultByRow.copy_(chunk.outputGradient)
        if (parts.weightGradient) {
          if (!unfolded) chunk.unfold()
          if (chunk eq chunks.head) torch.mm_out(weightGradient, chunk.result, chunk.transposedUnfolded)
          else torch.addmm_out(weightGradient, weightGradient, chunk.result, chunk.transposedUnfolded, one, one)
        }
        chunk.placed.foreach { placed =>
          torch.mm_out(placed.values, transposedWeights, chunk.result)
          placed.place()
        }
      }
      if (parts.weightGradient) bias.foreach { case (_, db) =>
        torch.sum_out(db, gradientPixels, ConvolutionProducts.RowsAndPixels, false, sameType)
      }
    }

    override def close(): Unit = kept.close()

    /** Rows `from` until `from` + `rows`. */
    private final class Chunk(from: Long, rows: Long) {
      private val input = kept(views.input.narrow(0L, from, rows))
      val unfolded: Tensor = matrix(unfoldedMemory, rows, terms.toLong)
      val transposedUnfolded: Tensor = kept(unfolded.t())
      private val places =
        kept(unfolded.view(inputs.toLong, kernel, kernel, rows, outputHeight.toLong, outputWidth.toLong))
      private val padded = if (padding == 0) None else Some(kept(paddedMemory.narrow(0L, 0L, rows)))
      private val inside = padded.map(interior)
      private val windows = kept {
        val source = padded.getOrElse(input)
        source.as_strided(
          Array(inputs.toLong, kernel, kernel, rows, outputHeight.toLong, outputWidth.toLong),
          Array(imageValues, paddedWidth, 1L, inputs * imageValues, stride * paddedWidth, stride),
          kept(new LongOptional(source.storage_offset()))
        )
      }

      /** (out, rows × pixels), and the same values as (rows, out, pixels). */
      val result: Tensor = matrix(resultMemory, rows, outputs.toLong)
      val resultByRow: Tensor =
        kept(kept(result.view(outputs.toLong, rows, pixels.toLong)).permute(1L, 0L, 2L))
      val output: Tensor = ofRows(views.output)
      val outputGradient: Tensor = ofRows(views.outputGradient)
      val placed: Option[Placed] =
        inputGradient.map(gradient => new Placed(kept(gradient.narrow(0L, from, rows)), rows))

      /** Writes the values under each place of the window into `unfolded`. */
      def unfold(): Unit = {
        inside.foreach(_.copy_(input))
        places.copy_(windows)
        ()
      }

      private def ofRows(values: Tensor): Tensor =
        kept(kept(values.narrow(0L, from, rows)).view(rows, outputs.toLong, pixels.toLong))
    }

    /** The gradient of the values under windows of one value, put where these stand in a chunk's rows of the input. */
    private final class Placed(gradient: Tensor, rows: Long) {
      val values: Tensor = matrix(placedMemory, rows, terms.toLong)
      private val byPlace = kept(values.view(inputs.toLong, rows, outputHeight.toLong, outputWidth.toLong))
      private val places = kept(
        gradient.as_strided(
          Array(inputs.toLong, rows, outputHeight.toLong, outputWidth.toLong),
          Array(imageValues, inputs * imageValues, stride * paddedWidth, stride),
          kept(new LongOptional(gradient.storage_offset()))
        )
      )

      def place(): Unit = {
        if (stride > 1) gradient.zero_()
        places.copy_(byPlace)
        ()
      }
    }

    private def imageValues: Long = paddedHeight * paddedWidth

    private def matrix(memory: Tensor, rows: Long, lines: Long): Tensor =
      kept(kept(memory.narrow(0L, 0L, lines * rows * pixels)).view(lines, rows * pixels))

    /** What lies inside the padding. */
    private def interior(padded: Tensor): Tensor =
      kept(kept(padded.narrow(2L, padding.toLong, height.toLong)).narrow(3L, padding.toLong, width.toLong))
  }

  def close(): Unit = own.close()
}

private[libtorch] object ConvolutionProducts {

  /** 8 MiB: products of fewer rows are slower, and what is more leaves the caches. */
  private val ChunkValues = 1L << 21
  private val RowsAndPixels = Array(0L, 2L)
}
