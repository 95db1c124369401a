package sparkdlbench.engine.bigdl

import sparkdlbench.data.Batch
import sparkdlbench.model.{DropoutKind, DropoutMask, LayerSpec}

final class BigDlDropout extends BigDlLayerKind {
  def name = DropoutKind.Name
  private[bigdl] def create(at: BigDlPlace): BigDlLayer = {
    val rate = DropoutKind.rate(at.layer)
    // Not in place: others may read its input. What it keeps is scaled while training.
    new BigDlDropoutLayer(at.library.create("Dropout", rate, false, true), rate, at)
  }

  /** The mask. */
  override private[bigdl] def kept(layer: LayerSpec, output: Seq[Int]): Long = output.map(_.toLong).product
}

/**
 * BigDL's dropout with the specification's mask instead of one that BigDL draws, which nobody could repeat: while
 * `isResampling` is false it multiplies by its tensor `noise` as it finds it.
 */
private[bigdl] final class BigDlDropoutLayer(module: BigDlModule, rate: Double, at: BigDlPlace)
    extends BigDlLayer(Seq(module)) {
  private val random = new DropoutMask(at.seed, at.index, rate)
  private val width = at.inputShape.product
  private val staging = new Array[Float](math.min(width, BigDlDropoutLayer.Staging))
  private var mask = new Array[Float](0)
  module.set("isResampling", java.lang.Boolean.FALSE)

  override def forward(inputs: Seq[BigDlTensor], batch: Batch, training: Boolean): BigDlTensor = {
    if (training) draw(batch)
    super.forward(inputs, batch, training)
  }

  private def draw(batch: Batch): Unit = {
    val length = Math.multiplyExact(batch.rows, width)
    if (mask.length != length) {
      mask = new Array[Float](length)
      module.set("noise", at.library.tensor(mask, batch.rows +: at.inputShape).value)
    }
    (0 until batch.rows).foreach { row =>
      val key = random.rowKey(batch.step, batch.ids(row))
      (0 until width by staging.length).foreach { from =>
        val count = math.min(staging.length, width - from)
        random.fill(key, from, count, staging)
        System.arraycopy(staging, 0, mask, row * width + from, count)
      }
    }
  }
}

private object BigDlDropoutLayer { val Staging = 4096 }
