package sparkdlbench.model

import sparkdlbench.config.{Key, Settings}

/** Multi-layer perceptron: linear layers of any widths with one activation between them. */
final class MlpFamily extends ModelFamily {
  def name = "mlp"
  def doc = "Multi-layer perceptron: hidden layers of any widths, ReLU, tanh or sigmoid"
  override def keys: Seq[Key[_]] = Seq(MlpFamily.hidden, MlpFamily.activation, MlpFamily.outputActivation)

  def build(inputShape: Seq[Int], classes: Int, settings: Settings): ModelSpec = {
    val activation = settings(MlpFamily.activation)
    // He et al. 2015 for ReLU, Glorot and Bengio 2010 for what follows a tanh or ends in a softmax.
    val hiddenInitializer = if (activation == "relu") "he-uniform" else "xavier-uniform"
    val widths = inputShape.product +: settings(MlpFamily.hidden)
    val hidden = widths.zip(widths.tail).zipWithIndex.flatMap { case ((in, out), index) =>
      Seq(linear(index + 1, in, out, hiddenInitializer), LayerSpec(s"$activation${index + 1}", activation))
    }
    val output = settings(MlpFamily.outputActivation) match {
      case "none" => Nil
      case chosen => Seq(LayerSpec(s"$chosen${widths.size}", chosen))
    }
    val last = linear(widths.size, widths.last, classes, "xavier-uniform")
    ModelSpec(name, inputShape, classes, (hidden :+ last) ++ output)
  }

  private def linear(number: Int, in: Int, out: Int, initializer: String) =
    LayerSpec(s"fc$number", "linear", Map("in" -> in.toDouble, "out" -> out.toDouble), initializer)
}

object MlpFamily {
  val hidden: Key[Seq[Int]] =
    Key.ints("model.hidden", "1024", "Widths of the hidden layers, from the input on; empty for none")
  val activation: Key[String] =
    Key.choice("model.activation", "relu", Seq("relu", "tanh", "sigmoid"), "Activation after each hidden layer")
  val outputActivation: Key[String] = Key.choice(
    "model.output_activation",
    "none",
    Seq("none", "relu", "tanh", "sigmoid"),
    "Activation of the class scores, before the softmax"
  )
}
