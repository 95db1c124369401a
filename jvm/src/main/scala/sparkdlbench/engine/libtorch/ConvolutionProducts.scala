package sparkdlbench.engine.libtorch

import org.bytedeco.javacpp.Pointer
import org.bytedeco.pytorch.global.torch
import org.bytedeco.pytorch.{LongOptional, Scalar, ScalarTypeOptional, Tensor}

import scala.collection.mutable

/**
 * A convolution as products of matrices over unfolded inputs (im2col; Chellapilla, Puri, Simard: High performance convolutional neural
 * networks for document processing, 2006). X: (terms, rows × pixels), below each place of the window the values under it; W:
 * (out, terms); Y: (out, rows × pixels). Y = W·X + b; dW = dY·Xᵀ, db = Σ dY; Wᵀ·dY is added up to the input's gradient where
 * windows overlap.
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
  private val chunkRows =
    math.max(1L, math.min(context.maxRows.toLong, chunkValues / (terms.toLong * pixels)))

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
  private lazy val unfoldedGradientMemory = own(torch.empty(terms * chunkRows * pixels))
  private lazy val resultMemory = own(torch.empty(outputs * chunkRows * pixels))
  private lazy val paddedMemory = own(torch.zeros(chunkRows, inputs.toLong, paddedHeight, paddedWidth))
  private lazy val paddedGradientMemory = own(torch.empty(chunkRows, inputs.toLong, paddedHeight, paddedWidth))

  /** The parts of the layer over `views` that are products. */
  def bind(views: LayerViews, parts: ProductParts): BoundLayer = new BoundLayer {
    private val kept = new Kept
    private val inputGradient = views.inputGradient.filter(_ => parts.inputGradient)
    private val chunks: IndexedSeq[Chunk] =
      (0L until views.rows by chunkRows).map(from => new Chunk(from, math.min(chunkRows, views.rows - from)))
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
      var first = true
      chunks.foreach { chunk =>
        if (parts.weightGradient || inputGradient.isDefined) chunk.resultByRow.copy_(chunk.outputGradient)
        if (parts.weightGradient) {
          if (!unfolded) chunk.unfold()
          if (first) torch.mm_out(weightGradient, chunk.result, chunk.transposedUnfolded)
          else torch.addmm_out(weightGradient, weightGradient, chunk.result, chunk.transposedUnfolded, one, one)
          first = false
        }
        chunk.folded.foreach { folded =>
          torch.mm_out(folded.unfoldedGradient, transposedWeights, chunk.result)
          folded.fold()
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
      val unfolded: Tensor = matrix(unfoldedMemory, terms.toLong)
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
      val result: Tensor = matrix(resultMemory, outputs.toLong)
      val resultByRow: Tensor =
        kept(kept(result.view(outputs.toLong, rows, pixels.toLong)).permute(1L, 0L, 2L))
      val output: Tensor = ofRows(views.output)
      val outputGradient: Tensor = ofRows(views.outputGradient)
      val folded: Option[Folded] = inputGradient.map { gradient =>
        new Folded(kept(gradient.narrow(0L, from, rows)), rows)
      }

      /** Writes the values under each place of the window into `unfolded`. */
      def unfold(): Unit = {
        inside.foreach(_.copy_(input))
        places.copy_(windows)
        ()
      }

      private def ofRows(values: Tensor): Tensor =
        kept(kept(values.narrow(0L, from, rows)).view(rows, outputs.toLong, pixels.toLong))

      private def matrix(memory: Tensor, lines: Long): Tensor =
        kept(kept(memory.narrow(0L, 0L, lines * rows * pixels)).view(lines, rows * pixels))
    }

    /** The gradient of the values under the windows, added up to that of a chunk's rows of the input. */
    private final class Folded(gradient: Tensor, rows: Long) {
      val unfoldedGradient: Tensor = kept(
        kept(unfoldedGradientMemory.narrow(0L, 0L, terms * rows * pixels)).view(terms.toLong, rows * pixels)
      )
      private val padded = if (padding == 0) None else Some(kept(paddedGradientMemory.narrow(0L, 0L, rows)))
      private val inside = padded.map(interior)
      private val sums = padded.getOrElse(gradient)

      /** For each value of the kernel: where its products are added, and these, both (in, rows, height, width of the output). */
      private val parts: IndexedSeq[(Tensor, Tensor)] = {
        val places = kept(
          unfoldedGradient.view(inputs.toLong, kernel * kernel, rows, outputHeight.toLong, outputWidth.toLong)
        )
        for (y <- 0L until kernel; x <- 0L until kernel) yield {
          val sum = sums.as_strided(
            Array(inputs.toLong, rows, outputHeight.toLong, outputWidth.toLong),
            Array(imageValues, inputs * imageValues, stride * paddedWidth, stride),
            kept(new LongOptional(sums.storage_offset() + y * paddedWidth + x))
          )
          kept(sum) -> kept(places.select(1L, y * kernel + x))
        }
      }

      /** A kernel of one value without stride reaches each value of the input once. */
      private val once = kernel == 1 && stride == 1

      def fold(): Unit = {
        if (once) parts.foreach { case (sum, part) => sum.copy_(part) }
        else {
          sums.zero_()
          parts.foreach { case (sum, part) => sum.add_(part) }
        }
        inside.foreach(gradient.copy_)
      }
    }

    private def imageValues: Long = paddedHeight * paddedWidth

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

/** Native objects that are closed together. */
private final class Kept extends AutoCloseable {
  private val held = mutable.ArrayBuffer.empty[Pointer]
  def apply[T <: Pointer](made: T): T = { held += made; made }
  def close(): Unit = { held.reverseIterator.foreach(_.close()); held.clear() }
}
