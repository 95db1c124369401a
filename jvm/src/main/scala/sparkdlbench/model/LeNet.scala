package sparkdlbench.model

import sparkdlbench.config.Settings

/**
 * LeNet as Caffe's examples/mnist/lenet_train_test.prototxt has it (after LeCun et al., Proc. IEEE 86(11), 1998): names, sizes
 * and weight filler are the file's (`xavier` is in Caffe LeCun's uniform); a ReLU follows ip1 alone; biases learn at twice the
 * rate. 431,080 parameters for 1 × 28 × 28.
 */
final class LeNetFamily extends ModelFamily {
  def name = "lenet"
  def doc = "Caffe's LeNet: two convolutions with max-pooling and 500 hidden units"

  def build(inputShape: Seq[Int], classes: Int, settings: Settings): ModelSpec = NetBuilder
    .images(name, inputShape, NetBuilder.Twice)
    .conv("conv1", 20, 5, "lecun-uniform")
    .maxPool("pool1", 2, 2, ceil = true)
    .conv("conv2", 50, 5, "lecun-uniform")
    .maxPool("pool2", 2, 2, ceil = true)
    .linear("ip1", 500, "lecun-uniform")
    .relu("relu1")
    .linear("ip2", classes, "lecun-uniform")
    .result(classes)
}
