package sparkdlbench.model

/** max(x, 0). */
final class ReluKind extends ElementwiseKind {
  def name = "relu"
  def doc = "max(x, 0)"
}

/** tanh(x). */
final class TanhKind extends ElementwiseKind {
  def name = "tanh"
  def doc = "tanh(x)"
}

/** 1 / (1 + exp(−x)). */
final class SigmoidKind extends ElementwiseKind {
  def name = "sigmoid"
  def doc = "1 / (1 + exp(−x))"
}

/** log softmax over a row's values. The loss applies one itself, and log softmax of log softmax is the same: it changes no result. */
final class LogSoftmaxKind extends ElementwiseKind {
  def name = "log-softmax"
  def doc = "Logarithm of the softmax over a row of one dimension"
  override def flops(layer: LayerSpec, inputs: Seq[Seq[Int]], output: Seq[Int]): Long = 3 * LayerKind.values(output)
}

/** While training, each value is 0 with probability `rate` and x / (1 − rate) otherwise; in evaluation, x. */
final class DropoutKind extends ElementwiseKind {
  def name = DropoutKind.Name
  def doc = "While training, zeroes values with probability `rate` and scales the others by 1 / (1 − rate)"
  override def options: Seq[String] = Seq(DropoutKind.Rate)
  override def outputShape(layer: LayerSpec, inputs: Seq[Seq[Int]]): Seq[Int] = {
    DropoutKind.rate(layer)
    inputs.head
  }
}

object DropoutKind {
  val Name = "dropout"
  val Rate = "rate"

  def rate(layer: LayerSpec): Double = layer.number(Rate, 0.5, least = 0, below = 1)

  /** Whether it is a dropout layer that drops anything. */
  def drops(layer: LayerSpec): Boolean = layer.kind == Name && rate(layer) > 0
}
