package sparkdlbench.engine.bigdl

import sparkdlbench.data.Batch
import sparkdlbench.model.{BatchNormKind, LayerSpec, LocalResponseNormKind}

import java.nio.FloatBuffer

final class BigDlBatchNorm extends BigDlLayerKind {
  def name = "batch-norm"

  private[bigdl] def create(at: BigDlPlace): BigDlLayer = {
    val channels = at.layer.int("channels")
    val eps = at.layer.number("eps", BatchNormKind.Eps)
    val momentum = at.layer.number("momentum", BatchNormKind.Momentum)
    // With weight and bias, in tensors of its own.
    val arguments = Seq[Any](channels, eps, momentum, true) ++ BigDlLayers.nothing(4)
    def images = at.library.create("SpatialBatchNormalization", arguments :+ BigDlLayers.Format: _*)
    val (before, norm, after) = at.inputShape match {
      case Seq(_) => (Nil, at.library.create("BatchNormalization", arguments: _*), Nil)
      case Seq(_, _, _) => (Nil, images, Nil)
      case shape =>
        def reshaped(to: Seq[Int]) = Seq(BigDlLayers.reshape(at.library, to))
        (reshaped(Seq(channels, shape.tail.product, 1)), images, reshaped(shape))
    }
    new BigDlBatchNormLayer(before, norm, after, at)
  }

  override private[bigdl] def refusal(layer: LayerSpec, inputShape: Seq[Int]): Option[String] =
    if (!BatchNormKind.isSynchronized(layer)) None
    else
      Some(
        "its option sync=1 asks for means over all workers' rows, and BigDL normalises each worker's own. Set sync=0 " +
          "and model.sync_batch_norm=false"
      )
}

/**
 * BigDL keeps running statistics in the module: they come from the engine's buffer before each pass, because whoever
 * trains may have changed them, and go back after a training pass. Its momentum and its variance, unbiased, are those of
 * the specification.
 */
private[bigdl] final class BigDlBatchNormLayer(
    before: Seq[BigDlModule],
    norm: BigDlModule,
    after: Seq[BigDlModule],
    at: BigDlPlace
) extends BigDlLayer((before :+ norm) ++ after) {
  private val valuesOfRow = at.inputShape.tail.map(_.toLong).product
  private val statistics: Seq[(BigDlTensor, FloatBuffer)] =
    norm.extras.zip(Seq("running_mean", "running_var").map(at.statistics))

  override def forward(inputs: Seq[BigDlTensor], batch: Batch, training: Boolean): BigDlTensor = {
    statistics.foreach { case (own, shared) => shared.get(0, own.array, own.offset, own.length) }
    val output = super.forward(inputs, batch, training)
    // The unbiased variance of one value does not exist: such a batch leaves the running statistics as they are.
    if (training && batch.rows * valuesOfRow > 1)
      statistics.foreach { case (own, shared) => shared.put(0, own.array, own.offset, own.length) }
    output
  }
}

final class BigDlLocalResponseNorm extends BigDlLayerKind {
  def name = "local-response-norm"

  private[bigdl] def create(at: BigDlPlace): BigDlLayer = new BigDlRowsLayer(
    at.library.create(
      "SpatialCrossMapLRN",
      at.layer.int("size", LocalResponseNormKind.Size),
      at.layer.number("alpha", LocalResponseNormKind.Alpha),
      at.layer.number("beta", LocalResponseNormKind.Beta),
      at.layer.number("k", LocalResponseNormKind.K),
      BigDlLayers.Format
    ),
    Seq("paddedRatio", "accumRatio")
  )

  /** The divisor before its power; the gradient's ratios with `size` − 1 channels around them, and their sum. */
  override private[bigdl] def kept(layer: LayerSpec, output: Seq[Int]): Long = {
    val area = output.tail.map(_.toLong).product
    area * (2L * output.head + layer.int("size", LocalResponseNormKind.Size))
  }
}
