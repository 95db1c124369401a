package sparkdlbench.model

import sparkdlbench.config.Settings

/**
 * CIFAR-10 Quick as Caffe's examples/cifar10/cifar10_quick_train_test.prototxt has it (after A. Krizhevsky's cuda-convnet
 * layers-80sec): names, sizes and Gaussian fillers are the file's; the first pooling takes maxima and the other two means, with Caffe's
 * rounding up; biases learn at twice the rate. 145,578 parameters for 3 × 32 × 32. The fillers expect pixels of 0 to 255 less their mean.
 */
final class CifarQuickFamily extends ModelFamily {
  def name = "cifar-quick"
  def doc = "Caffe's CIFAR-10 Quick: three convolutions with pooling and 64 hidden units"
  override def usual: Option[(Seq[Int], Int)] = Some((Seq(3, 32, 32), 10))

  def build(inputShape: Seq[Int], classes: Int, settings: Settings): ModelSpec = NetBuilder
    .images(name, inputShape, NetBuilder.Twice)
    .conv("conv1", 32, 5, "gaussian-0.0001", padding = 2)
    .maxPool("pool1", 3, 2, ceil = true)
    .relu("relu1")
    .conv("conv2", 32, 5, "gaussian-0.01", padding = 2)
    .relu("relu2")
    .avgPool("pool2", 3, 2, ceil = true)
    .conv("conv3", 64, 5, "gaussian-0.01", padding = 2)
    .relu("relu3")
    .avgPool("pool3", 3, 2, ceil = true)
    .linear("ip1", 64, "gaussian-0.1")
    .linear("ip2", classes, "gaussian-0.1")
    .result(classes)
}
