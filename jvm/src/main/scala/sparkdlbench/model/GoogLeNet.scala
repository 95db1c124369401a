package sparkdlbench.model

import sparkdlbench.config.Settings

/**
 * GoogLeNet (Szegedy et al., CVPR 2015) as Caffe's models/bvlc_googlenet/train_val.prototxt has it, without the two auxiliary classifiers, as
 * Caffe's deploy.prototxt and BigDL's Inception_v1_NoAuxClassifier. Names and fillers are the file's; the last pooling takes the mean of the
 * whole image; biases learn at twice the rate and do not decay. 6,998,552 parameters for 1,000 classes.
 */
final class GoogLeNetFamily extends ModelFamily {
  import GoogLeNetFamily._

  def name = "googlenet"
  def doc = "GoogLeNet (Inception v1) without auxiliary classifiers, for images of 224 × 224"
  override def usual: Option[(Seq[Int], Int)] = Some((Seq(3, 224, 224), 1000))

  def build(inputShape: Seq[Int], classes: Int, settings: Settings): ModelSpec = {
    val net = NetBuilder.images(name, inputShape, NetBuilder.TwiceWithoutDecay)
    convolution(net, "conv1/7x7_s2", 64, 7, stride = 2)
    net.maxPool("pool1/3x3_s2", 3, 2, ceil = true).localResponseNorm("pool1/norm1")
    convolution(net, "conv2/3x3_reduce", 64, 1)
    convolution(net, "conv2/3x3", 192, 3)
    net.localResponseNorm("conv2/norm2").maxPool("pool2/3x3_s2", 3, 2, ceil = true)
    modules.foreach {
      case Pool(layer) => net.maxPool(layer, 3, 2, ceil = true)
      case module: Inception => inception(net, module)
    }
    net
      .globalAvgPool("pool5/7x7_s1")
      .dropout("pool5/drop_7x7_s1", 0.4)
      .linear("loss3/classifier", classes, Filler)
      .result(classes)
  }
}

private object GoogLeNetFamily {

  /** Caffe's `xavier`. */
  val Filler = "lecun-uniform"

  sealed trait Module
  final case class Pool(layer: String) extends Module

  /** Channels of the 1 × 1 branch, of the 3 × 3 branch with its reduction, of the 5 × 5 branch with its, and after the pooling. */
  final case class Inception(layer: String, one: Int, reduce3: Int, three: Int, reduce5: Int, five: Int, pool: Int)
      extends Module

  /** Table 1 of the paper. */
  val modules: Seq[Module] = Seq(
    Inception("inception_3a", 64, 96, 128, 16, 32, 32),
    Inception("inception_3b", 128, 128, 192, 32, 96, 64),
    Pool("pool3/3x3_s2"),
    Inception("inception_4a", 192, 96, 208, 16, 48, 64),
    Inception("inception_4b", 160, 112, 224, 24, 64, 64),
    Inception("inception_4c", 128, 128, 256, 24, 64, 64),
    Inception("inception_4d", 112, 144, 288, 32, 64, 64),
    Inception("inception_4e", 256, 160, 320, 32, 128, 128),
    Pool("pool4/3x3_s2"),
    Inception("inception_5a", 256, 160, 320, 32, 128, 128),
    Inception("inception_5b", 384, 192, 384, 48, 128, 128)
  )

  /** A convolution that keeps the image's size but for its stride, and its ReLU; its name. */
  def convolution(net: NetBuilder, layer: String, out: Int, kernel: Int, stride: Int = 1, input: String = ""): String =
    net
      .conv(layer, out, kernel, Filler, stride, padding = kernel / 2, bias = Some("constant-0.2"), input = input)
      .relu(layer.replaceFirst("/", "/relu_"))
      .last

  def inception(net: NetBuilder, module: Inception): Unit = {
    val (input, name) = (net.last, module.layer)
    val one = convolution(net, s"$name/1x1", module.one, 1, input = input)
    convolution(net, s"$name/3x3_reduce", module.reduce3, 1, input = input)
    val three = convolution(net, s"$name/3x3", module.three, 3)
    convolution(net, s"$name/5x5_reduce", module.reduce5, 1, input = input)
    val five = convolution(net, s"$name/5x5", module.five, 5)
    net.maxPool(s"$name/pool", 3, 1, padding = 1, input = input)
    val pool = convolution(net, s"$name/pool_proj", module.pool, 1)
    net.join(s"$name/output", "concat", one, three, five, pool)
    ()
  }
}
