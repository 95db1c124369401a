package sparkdlbench.engine.libtorch

import org.bytedeco.pytorch.Tensor
import org.bytedeco.pytorch.global.torch

/**
 * The largest value under each window, over a copy whose channels lie side by side: ATen's kernel for that order takes whole vectors of
 * channels and is, with both copies, 3 to 5 times as fast as the one for channels apart, which takes value by value. The results are the
 * same. Rows go by chunks that fit the caches.
 */
private[libtorch] final class ChannelsLastMaxPool(context: LayerContext) extends TorchLayer {
  private val window = WindowArguments.ofPooling(context)
  private val shape = context.inputShape.map(_.toLong)
  private val outputShape = window.outputShape(context.inputShape).map(_.toLong)
  private val rowChunks = new RowChunks(context.maxRows, shape.product, ChannelsLastMaxPool.ChunkValues)

  private val own = new Kept
  private val inputMemory = ordered(shape, (sizes: Seq[Long]) => torch.empty(sizes: _*))
  private val outputMemory = ordered(outputShape, (sizes: Seq[Long]) => torch.empty(sizes: _*))
  private val placeMemory = ordered(outputShape, (sizes: Seq[Long]) => Tensors.emptyLongs(sizes: _*))

  def bind(views: LayerViews): BoundLayer = new BoundLayer {
    private val kept = new Kept
    private val indices = kept(Tensors.emptyLongs(views.rows +: outputShape: _*))
    private val chunks: IndexedSeq[Chunk] = rowChunks.of(views.rows)(new Chunk(_, _))

    def forward(): Unit = chunks.foreach { chunk =>
      chunk.input.copy_(chunk.givenInput)
      window.max(chunk.output, chunk.places, chunk.input)
      chunk.wantedOutput.copy_(chunk.output)
      chunk.wantedIndices.copy_(chunk.places)
    }

    def backward(): Unit = views.inputGradient.foreach(window.maxBackward(_, views, indices))

    override def close(): Unit = kept.close()

    /** Rows `from` until `from` + `rows`, in the layer's memory and where they belong. */
    private final class Chunk(from: Long, rows: Long) {
      val input: Tensor = kept(inputMemory.narrow(0L, 0L, rows))
      val output: Tensor = kept(outputMemory.narrow(0L, 0L, rows))
      val places: Tensor = kept(placeMemory.narrow(0L, 0L, rows))
      val givenInput: Tensor = kept(views.input.narrow(0L, from, rows))
      val wantedOutput: Tensor = kept(views.output.narrow(0L, from, rows))
      val wantedIndices: Tensor = kept(indices.narrow(0L, from, rows))
    }
  }

  override def close(): Unit = own.close()

  /** Memory of a chunk's rows of `shape` (channels, height, width), as that shape, channels side by side. */
  private def ordered(shape: Seq[Long], make: Seq[Long] => Tensor): Tensor =
    own(own(make(Seq(rowChunks.most, shape(1), shape(2), shape(0)))).permute(0L, 3L, 1L, 2L))
}

private[libtorch] object ChannelsLastMaxPool {

  /** 2 MiB of input. */
  private val ChunkValues = 1L << 19

  /** A vector register's worth; below it the other order is as fast. */
  private val LeastChannels = 8

  def fits(context: LayerContext): Boolean = context.inputShape.head >= LeastChannels
}
