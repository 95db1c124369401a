package sparkdlbench.model

import sparkdlbench.config.Settings

/**
 * ResNet-18 with a stem of one 3 × 3 convolution of stride 1 and no pooling, for small images (He et al., CVPR 2016; the stem as for their
 * CIFAR nets). Names are torchvision's. 11,172,810 parameters for 1 × 28 × 28.
 */
final class ResNet18Family extends ModelFamily {
  def name = "resnet-18"
  def doc = "ResNet-18 with a 3 × 3 stem, for small images"

  def build(inputShape: Seq[Int], classes: Int, settings: Settings): ModelSpec = {
    val net = NetBuilder
      .images(name, inputShape)
      .conv("conv1", 64, 3, ResNet.Filler, padding = 1, bias = None)
      .batchNorm("bn1")
      .relu("relu")
    ResNet.stages(net, Seq(2, 2, 2, 2), ResNet.basicBlock)
    net.globalAvgPool("avgpool").linear("fc", classes, "torch-uniform").result(classes)
  }
}

/**
 * ResNet-50 (He et al., CVPR 2016), with the stride of a stage's first block in its 3 × 3 convolution, as torchvision's resnet50 and Goyal et
 * al. 2017 have it; names are torchvision's. 25,557,032 parameters for 3 × 224 × 224 and 1,000 classes.
 */
final class ResNet50Family extends ModelFamily {
  def name = "resnet-50"
  def doc = "ResNet-50 for images of 224 × 224"
  override def usual: Option[(Seq[Int], Int)] = Some((Seq(3, 224, 224), 1000))

  def build(inputShape: Seq[Int], classes: Int, settings: Settings): ModelSpec = {
    val net = NetBuilder
      .images(name, inputShape)
      .conv("conv1", 64, 7, ResNet.Filler, stride = 2, padding = 3, bias = None)
      .batchNorm("bn1")
      .relu("relu")
      .maxPool("maxpool", 3, 2, padding = 1)
    ResNet.stages(net, Seq(3, 4, 6, 3), ResNet.bottleneck)
    net.globalAvgPool("avgpool").linear("fc", classes, "torch-uniform").result(classes)
  }
}

private[model] object ResNet {

  /** Normal with variance 2 / fan-out, as torchvision's resnets (He et al., ICCV 2015). */
  val Filler = "he-out-normal"

  /** Adds a block called `name` that reads `net.last`: `width` channels inside, the given stride. */
  type Block = (NetBuilder, String, Int, Int, Boolean) => Unit

  /** Four stages of 64, 128, 256 and 512 channels; all but the first halve the image. */
  def stages(net: NetBuilder, blocks: Seq[Int], block: Block): Unit =
    blocks.zipWithIndex.foreach { case (count, stage) =>
      (0 until count).foreach { index =>
        val stride = if (stage > 0 && index == 0) 2 else 1
        block(net, s"layer${stage + 1}.$index", 64 << stage, stride, index == 0)
      }
    }

  /** 3 × 3, 3 × 3; the first of a stage with other channels has a convolution in its short cut. */
  val basicBlock: Block = (net, name, width, stride, first) => {
    val input = net.last
    net
      .conv(s"$name.conv1", width, 3, Filler, stride, padding = 1, bias = None)
      .batchNorm(s"$name.bn1")
      .relu(s"$name.relu1")
      .conv(s"$name.conv2", width, 3, Filler, padding = 1, bias = None)
      .batchNorm(s"$name.bn2")
    close(net, name, input, width, stride, projects = first && stride > 1)
  }

  /** 1 × 1, 3 × 3, 1 × 1 with four times the channels. */
  val bottleneck: Block = (net, name, width, stride, first) => {
    val input = net.last
    net
      .conv(s"$name.conv1", width, 1, Filler, bias = None)
      .batchNorm(s"$name.bn1")
      .relu(s"$name.relu1")
      .conv(s"$name.conv2", width, 3, Filler, stride, padding = 1, bias = None)
      .batchNorm(s"$name.bn2")
      .relu(s"$name.relu2")
      .conv(s"$name.conv3", 4 * width, 1, Filler, bias = None)
      .batchNorm(s"$name.bn3")
    close(net, name, input, 4 * width, stride, projects = first)
  }

  /** The short cut, the sum, the ReLU. */
  private def close(net: NetBuilder, name: String, input: String, out: Int, stride: Int, projects: Boolean): Unit = {
    val branch = net.last
    val shortCut =
      if (!projects) input
      else {
        net.conv(s"$name.downsample.0", out, 1, Filler, stride, bias = None, input = input)
        net.batchNorm(s"$name.downsample.1").last
      }
    net.join(s"$name.add", "add", branch, shortCut).relu(s"$name.relu")
    ()
  }
}
