package sparkdlbench.model

import sparkdlbench.config.Settings

/**
 * Two convolutions of 5 × 5 (20 and 50 channels), each with a ReLU and max-pooling by 2, then linear 800-500-10 with a ReLU: the net
 * of PyTorch's examples/mnist (2018). 431,080 parameters for 1 × 28 × 28. Weights start from He's uniform.
 */
final class CnnFamily extends ModelFamily {
  def name = "cnn"
  def doc = "Two convolutions with ReLU and max-pooling, then linear 800-500-10"

  def build(inputShape: Seq[Int], classes: Int, settings: Settings): ModelSpec = NetBuilder
    .images(name, inputShape)
    .conv("conv1", 20, 5, "he-uniform")
    .relu("relu1")
    .maxPool("pool1", 2, 2)
    .conv("conv2", 50, 5, "he-uniform")
    .relu("relu2")
    .maxPool("pool2", 2, 2)
    .linear("fc1", 500, "he-uniform")
    .relu("relu3")
    .linear("fc2", classes, "xavier-uniform")
    .result(classes)
}
