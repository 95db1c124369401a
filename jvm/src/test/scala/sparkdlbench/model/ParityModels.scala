package sparkdlbench.model

import sparkdlbench.config.Variants
import sparkdlbench.data.Batch
import sparkdlbench.vector.FlatBuffer

import java.nio.charset.StandardCharsets
import java.nio.file.{Files, Paths}
import java.nio.{ByteBuffer, ByteOrder}

/**
 * A model whose loss and gradients every engine must agree on.
 *
 * @param learningRate
 *   of the 20 golden steps
 */
final case class ParityModel(name: String, spec: ModelSpec, rows: Int, learningRate: Double)

/**
 * The models of the parity tests: large nets at small images and batches. Their specifications stand in
 * jvm/src/test/resources/golden/models/NAME.json together with losses and gradient as PyTorch finds them in double precision:
 * {{{
 * project/sbt "jvm/Test/runMain sparkdlbench.model.ParityModels src/test/resources/golden/models"
 * python tests/golden.py jvm/src/test/resources/golden/models
 * }}}
 * Rows, image sizes, initial weights and learning rates are such that 20 steps change the loss by a hundred times the tolerance and more, and that
 * rounding changes nothing by more than a quarter of it; tests/golden.py objects otherwise.
 */
object ParityModels {
  val seed = 1L
  val steps = 20

  /** Step whose rows are for testing. */
  val test = 99

  def family(name: String, inputShape: Seq[Int], settings: (String, String)*): ModelSpec =
    Variants.find[ModelFamily]("model", name).build(inputShape, 10, RunKeysForTests.settings(settings: _*))

  private val mnist = Seq(1, 28, 28)
  private val cifar = Seq(3, 32, 32)

  lazy val all: Seq[ParityModel] = Seq(
    ParityModel("softmax", family("softmax", mnist), 16, 0.1),
    ParityModel("mlp-784-1024-10", family("mlp", mnist), 12, 0.05),
    ParityModel("mlp-3072-1024-10", family("mlp", cifar), 16, 0.02),
    ParityModel(
      "mlp-784-100-50-10",
      family("mlp", mnist, "model.hidden" -> "100,50", "model.output_activation" -> "tanh"),
      16,
      0.05
    ),
    ParityModel("lenet", family("lenet", mnist), 8, 0.01),
    ParityModel("cnn", family("cnn", mnist), 8, 0.01),
    ParityModel("cifar-quick", awake(family("cifar-quick", cifar)), 4, 0.01),
    ParityModel("every-layer", everyLayer, 6, 0.05)
  ) ++ large

  private def large: Seq[ParityModel] = Seq(
    ParityModel("resnet-18", lifted(family("resnet-18", Seq(1, 12, 12))), 4, 0.0005),
    ParityModel("vgg-16", lifted(family("vgg-16", Seq(3, 17, 17))), 4, 0.0005),
    ParityModel("alexnet", family("alexnet", Seq(3, 67, 67)), 2, 0.005),
    ParityModel("googlenet", family("googlenet", Seq(3, 64, 64)), 1, 0.0005),
    ParityModel("resnet-50", lifted(family("resnet-50", Seq(3, 33, 33))), 4, 0.00005)
  )

  /**
   * With biases of batch normalisation that start at 2: from 0 so many activations lie at the ReLU's kink that rounding takes some of them to its
   * other side. The gradient is another one there; within a few steps other activations follow, and two engines that are both right part. At 2 about
   * one activation in 40 is still negative.
   */
  private def lifted(spec: ModelSpec): ModelSpec = spec.copy(layers = spec.layers.map { layer =>
    if (layer.kind == BatchNormKind.Name) layer.copy(biasInitializer = "constant-2") else layer
  })

  /** With convolutions' weights that 20 steps can move: Caffe's 1e-4 in the first of them lets nothing but the last bias learn. */
  private def awake(spec: ModelSpec): ModelSpec = spec.copy(layers = spec.layers.map { layer =>
    if (layer.kind == "conv2d") layer.copy(initializer = "gaussian-0.05") else layer
  })

  /** Every layer kind, values with several readers, and one layer that reads a value twice. */
  def everyLayer: ModelSpec = new NetBuilder("every-layer", Seq(4, 13, 11))
    .conv("conv1", 8, 3, "he-normal", stride = 2, padding = 1, groups = 2, bias = Some("constant-0.1"))
    .batchNorm("bn1")
    .relu("relu1")
    .localResponseNorm("lrn")
    .conv("left", 4, 1, "xavier-normal", bias = None, input = "lrn")
    .add(LayerSpec("sigmoid", "sigmoid"))
    .maxPool("right", 3, 1, padding = 1, input = "lrn")
    .join("joined", "concat", "sigmoid", "right", "left")
    .dropout("dropout1", 0.3)
    .avgPool("pool1", 3, 2, ceil = true)
    .join("twice", "add", "pool1", "pool1")
    .conv("conv2", 16, 3, "he-out-normal", padding = 1)
    .add(LayerSpec("tanh", "tanh"))
    .join("residual", "add", "twice", "tanh")
    .maxPool("pool2", 2, 2, ceil = true)
    .join("wide", "concat", "pool2", "pool2")
    .add(LayerSpec("flat", "flatten"))
    .linear("fc1", 12, "lecun-normal")
    .batchNorm("bn2", eps = 1e-3)
    .dropout("dropout2", 0.5)
    .linear("fc2", 10, "torch-uniform", bias = "uniform-0.1")
    .add(LayerSpec("log", "log-softmax"))
    .result(10)

  /**
   * Rows from the initialisers' generator, so that any language can make them: row r of class c = (3 r + step) mod classes has the
   * values uniform-0.5 (seed 1000 + step), plus 1 at every place i with i mod classes = c.
   */
  def batch(spec: ModelSpec, rows: Int, step: Int): Batch = {
    val width = spec.inputShape.product
    val noise = Initializers.values("uniform-0.5", Seq(rows, width), 1000L + step, 0)
    val features = new FlatBuffer(rows * width)
    val labels = ByteBuffer.allocateDirect(rows * 8).order(ByteOrder.nativeOrder()).asLongBuffer()
    for (row <- 0 until rows) {
      val label = (3 * row + step) % spec.classes
      labels.put(row, label.toLong)
      for (i <- 0 until width) {
        val value = noise(row * width + i)
        features.floats.put(row * width + i, if (i % spec.classes == label) value + 1f else value)
      }
    }
    Batch(rows, features.floats, labels, step = step.toLong)
  }

  /** ‖g‖ and two projections of a tensor's gradient, on vectors uniform-1 of seed 77 and 78 and the tensor's index. */
  def fingerprint(spec: ModelSpec, gradient: FlatBuffer): Seq[Seq[Double]] = spec.layout.zipWithIndex.map {
    case (tensor, index) =>
      val sums = new Array[Double](3)
      val directions = Seq(77L, 78L).map(Initializers.values("uniform-1", tensor.shape, _, index))
      for (i <- 0 until tensor.length) {
        val value = gradient.floats.get(tensor.offset + i).toDouble
        sums(0) += value * value
        sums(1) += value * directions(0)(i)
        sums(2) += value * directions(1)(i)
      }
      Seq(math.sqrt(sums(0)), sums(1), sums(2))
  }

  /** Writes the specifications; `tests/golden.py` adds the numbers. */
  def main(arguments: Array[String]): Unit = all.foreach { model =>
    val text =
      s"""{"rows": ${model.rows}, "learning_rate": ${model.learningRate}, "model": ${model.spec.toJson}}"""
    Files.write(Paths.get(arguments(0), s"${model.name}.json"), text.getBytes(StandardCharsets.UTF_8))
  }
}
