package sparkdlbench.engine.libtorch

import org.bytedeco.pytorch.global.torch
import sparkdlbench.model.{DropoutKind, DropoutMask}
import sparkdlbench.vector.FlatBuffer

final class TorchDropout extends TorchLayerKind {
  def name = DropoutKind.Name
  private[libtorch] def load(context: LayerContext): TorchLayer =
    if (DropoutKind.drops(context.spec)) new DropoutLayer(context) else new SameValuesLayer
}

/** y = x · mask while training, y = x otherwise; dx = dy · mask. The mask belongs to rows and step: see `DropoutMask`. */
private[libtorch] final class DropoutLayer(context: LayerContext) extends TorchLayer {
  private val width = context.inputShape.product
  private val factors = new FlatBuffer(Math.multiplyExact(context.maxRows, width))
  private val random = new DropoutMask(context.seed, context.index, DropoutKind.rate(context.spec))
  private val staging = new Array[Float](DropoutLayer.Staging)

  override def worksInPlace: Boolean = true

  def bind(views: LayerViews): BoundLayer = new BoundLayer {
    private val rows = views.rows.toInt
    private val mask = Tensors.over(factors, 0, rows +: context.inputShape)
    private val inPlace = Tensors.sameMemory(views.input, views.output)

    def forward(): Unit =
      if (context.state.training) {
        fill(rows)
        torch.mul_out(views.output, views.input, mask)
        ()
      } else if (!inPlace) { views.output.copy_(views.input); () }

    def backward(): Unit = views.inputGradient.foreach(torch.mul_out(_, views.outputGradient, mask))
    override def close(): Unit = mask.close()
  }

  private def fill(rows: Int): Unit = {
    var row = 0
    while (row < rows) {
      val key = random.rowKey(context.state.step, context.state.ids(row))
      var from = 0
      while (from < width) {
        val count = math.min(staging.length, width - from)
        random.fill(key, from, count, staging)
        factors.floats.put(row * width + from, staging, 0, count)
        from += count
      }
      row += 1
    }
  }
}

private object DropoutLayer { val Staging = 4096 }
