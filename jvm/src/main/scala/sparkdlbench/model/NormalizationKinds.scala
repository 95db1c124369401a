package sparkdlbench.model

import sparkdlbench.common.ConfigurationException

/**
 * Batch normalisation over the rows (and over height and width, where rows have them) of each worker's part of the batch, or with
 * `sync` of the whole batch: y = (x − mean) / √(variance + eps) · weight + bias (Ioffe and Szegedy, ICML 2015). Evaluation uses running statistics: running = (1 −
 * momentum) · running + momentum · batch's, with the unbiased variance, as PyTorch computes them.
 */
final class BatchNormKind extends LayerKind {
  def name = BatchNormKind.Name
  def doc =
    "Batch normalisation per channel over each worker's rows, or all workers'; keeps running statistics for evaluation"
  override def options: Seq[String] = Seq("channels", "eps", "momentum", BatchNormKind.Sync)

  override def parameterShapes(layer: LayerSpec): Seq[(String, Seq[Int])] =
    Seq("weight" -> Seq(layer.int("channels")), "bias" -> Seq(layer.int("channels")))

  override def statistics(layer: LayerSpec): Seq[StatisticShape] = Seq(
    StatisticShape("running_mean", layer.int("channels"), 0f),
    StatisticShape("running_var", layer.int("channels"), 1f)
  )

  override def exchanges(layer: LayerSpec): Seq[Int] =
    if (!BatchNormKind.isSynchronized(layer)) Nil
    else Seq(BatchNormKind.forwardLength(layer.int("channels")), BatchNormKind.backwardLength(layer.int("channels")))

  def outputShape(layer: LayerSpec, inputs: Seq[Seq[Int]]): Seq[Int] = {
    val input = inputs.head
    if (input.head != layer.int("channels"))
      throw LayerKind.mismatch(layer, "channels", layer.int("channels"), input.head, "channels")
    layer.number("eps", BatchNormKind.Eps, least = 0)
    layer.number("momentum", BatchNormKind.Momentum, least = 0, below = 1.000001)
    BatchNormKind.isSynchronized(layer)
    input
  }

  override def flops(layer: LayerSpec, inputs: Seq[Seq[Int]], output: Seq[Int]): Long = 4 * LayerKind.values(output)
}

object BatchNormKind {
  val Name = "batch-norm"
  val Sync = "sync"
  val Eps = 1e-5
  val Momentum = 0.1

  /** Whether it works over all ranks' rows. */
  def isSynchronized(layer: LayerSpec): Boolean = layer.flag(Sync, default = false)

  /** Number of rows; means; sums of squares. */
  private[sparkdlbench] def forwardLength(channels: Int): Int = 1 + 2 * channels

  /** Gradients of weight and bias. */
  private[sparkdlbench] def backwardLength(channels: Int): Int = 2 * channels
}

/**
 * Local response normalisation across channels: y = x / (k + alpha / size · Σ x²)^beta, the sum over `size` neighbouring
 * channels (Krizhevsky, Sutskever and Hinton, NIPS 2012; alpha / size as Caffe and PyTorch have it).
 */
final class LocalResponseNormKind extends LayerKind {
  def name = "local-response-norm"
  def doc = "Divides by a power of the mean square over neighbouring channels"
  override def options: Seq[String] = Seq("size", "alpha", "beta", "k")

  def outputShape(layer: LayerSpec, inputs: Seq[Seq[Int]]): Seq[Int] = {
    LayerKind.image(layer, inputs.head)
    val size = layer.int("size", LocalResponseNormKind.Size)
    if (size % 2 == 0)
      throw new ConfigurationException(
        s"Layer '${layer.name}' of kind '${layer.kind}' has size=$size, and the number of neighbouring channels must be odd, such as 5."
      )
    inputs.head
  }

  override def flops(layer: LayerSpec, inputs: Seq[Seq[Int]], output: Seq[Int]): Long =
    LayerKind.values(output) * (layer.int("size", LocalResponseNormKind.Size) + 4)
}

object LocalResponseNormKind {
  val Size = 5
  val Alpha = 1e-4
  val Beta = 0.75
  val K = 1.0
}
