package sparkdlbench.model

import sparkdlbench.config.Settings

/**
 * VGG-16 for CIFAR-10 (after Simonyan and Zisserman, ICLR 2015) with batch normalisation and dropout, as S. Zagoruyko's "92.45% on CIFAR-10 in
 * Torch" (2015) and BigDL's VggForCifar10 have it: 13 convolutions of 3 × 3, then 512 hidden units. 14,991,946 parameters.
 */
final class Vgg16Family extends ModelFamily {
  def name = "vgg-16"
  def doc = "VGG-16 for CIFAR-10, with batch normalisation and dropout"
  override def usual: Option[(Seq[Int], Int)] = Some((Seq(3, 32, 32), 10))

  /** Channels of each block's convolutions; dropout after all but the last of a block. */
  private val blocks = Seq(Seq(64, 64), Seq(128, 128), Seq(256, 256, 256), Seq(512, 512, 512), Seq(512, 512, 512))

  def build(inputShape: Seq[Int], classes: Int, settings: Settings): ModelSpec = {
    val net = NetBuilder.images(name, inputShape)
    for ((widths, block) <- blocks.zipWithIndex) {
      for ((width, index) <- widths.zipWithIndex) {
        val suffix = s"${block + 1}_${index + 1}"
        net
          .conv(s"conv$suffix", width, 3, "he-out-normal", padding = 1)
          .batchNorm(s"bn$suffix", eps = 1e-3)
          .relu(s"relu$suffix")
        if (index < widths.size - 1) net.dropout(s"drop$suffix", if (block == 0) 0.3 else 0.4)
      }
      net.maxPool(s"pool${block + 1}", 2, 2, ceil = true)
    }
    net
      .dropout("drop6", 0.5)
      .linear("fc6", 512, "he-uniform")
      .batchNorm("bn6")
      .relu("relu6")
      .dropout("drop7", 0.5)
      .linear("fc7", classes, "xavier-uniform")
      .result(classes)
  }
}
