package sparkdlbench.model

import sparkdlbench.config.Settings

/** Softmax (multinomial logistic) regression: one linear layer. Convex, so it starts from zero weights whatever the seed. */
final class SoftmaxFamily extends ModelFamily {
  def name = "softmax"
  def doc = "Softmax regression: one linear layer from the input to the classes"

  def build(inputShape: Seq[Int], classes: Int, settings: Settings): ModelSpec = {
    val options = Map("in" -> inputShape.product.toDouble, "out" -> classes.toDouble)
    ModelSpec(name, inputShape, classes, Seq(LayerSpec("fc", "linear", options, "zero")))
  }
}
