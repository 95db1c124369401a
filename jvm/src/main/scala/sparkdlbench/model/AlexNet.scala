package sparkdlbench.model

import sparkdlbench.config.Settings

/**
 * AlexNet (Krizhevsky, Sutskever and Hinton, NIPS 2012) as Caffe's models/bvlc_alexnet/train_val.prototxt has it: groups of two, local response
 * normalisation, names and fillers are the file's; biases learn at twice the rate and do not decay. 60,965,224 parameters for 1,000 classes, at 227 × 227 as in the file and at 224 × 224 alike.
 */
final class AlexNetFamily extends ModelFamily {
  def name = "alexnet"
  def doc = "AlexNet as Caffe has it, for images of 224 × 224"
  override def usual: Option[(Seq[Int], Int)] = Some((Seq(3, 224, 224), 1000))

  def build(inputShape: Seq[Int], classes: Int, settings: Settings): ModelSpec = {
    val (narrow, wide, shifted) = ("gaussian-0.01", "gaussian-0.005", "constant-0.1")
    NetBuilder
      .images(name, inputShape, NetBuilder.TwiceWithoutDecay)
      .conv("conv1", 96, 11, narrow, stride = 4)
      .relu("relu1")
      .localResponseNorm("norm1")
      .maxPool("pool1", 3, 2, ceil = true)
      .conv("conv2", 256, 5, narrow, padding = 2, groups = 2, bias = Some(shifted))
      .relu("relu2")
      .localResponseNorm("norm2")
      .maxPool("pool2", 3, 2, ceil = true)
      .conv("conv3", 384, 3, narrow, padding = 1)
      .relu("relu3")
      .conv("conv4", 384, 3, narrow, padding = 1, groups = 2, bias = Some(shifted))
      .relu("relu4")
      .conv("conv5", 256, 3, narrow, padding = 1, groups = 2, bias = Some(shifted))
      .relu("relu5")
      .maxPool("pool5", 3, 2, ceil = true)
      .linear("fc6", 4096, wide, shifted)
      .relu("relu6")
      .dropout("drop6", 0.5)
      .linear("fc7", 4096, wide, shifted)
      .relu("relu7")
      .dropout("drop7", 0.5)
      .linear("fc8", classes, narrow)
      .result(classes)
  }
}
