package sparkdlbench.engine.libtorch

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.model.Window

/** Which parts of known nets' convolutions are products. */
class ProductPartsSuite extends AnyFunSuite {
  private def parts(
      inputs: Int,
      side: Int,
      outputs: Int,
      kernel: Int,
      stride: Int,
      padding: Int,
      rows: Long,
      groups: Int = 1
  ) =
    ProductParts.of(
      ConvolutionShape(inputs, side, side, outputs, Window(kernel, stride, padding, ceil = false), groups),
      rows
    )
  private val output = ProductParts.none.copy(output = true)
  private val weights = ProductParts.none.copy(weightGradient = true)

  for (
    (name, found, expected) <- Seq(
      ("LeNet's first, of one channel", parts(1, 28, 20, 5, 1, 0, 32), output),
      ("LeNet's second, of 20 and 50 channels", parts(20, 12, 50, 5, 1, 0, 32), output.copy(weightGradient = true)),
      ("CIFAR-10 Quick's first", parts(3, 32, 32, 5, 1, 2, 50), output),
      ("CIFAR-10 Quick's second, of whole blocks", parts(32, 16, 32, 5, 1, 2, 50), ProductParts.none),
      ("AlexNet's first, of many terms", parts(3, 227, 64, 11, 4, 2, 4), ProductParts.none),
      ("ResNet-50's first", parts(3, 224, 64, 7, 2, 3, 4), output),
      ("ResNet's way around with stride", parts(256, 7, 512, 1, 2, 0, 16), ProductParts.every),
      ("1 × 1 with padding", parts(256, 7, 512, 1, 2, 1, 16), ProductParts.none),
      ("ResNet-18's middle", parts(256, 7, 256, 3, 1, 1, 16), ProductParts.none),
      ("ResNet-18's last, 16 rows", parts(512, 4, 512, 3, 1, 1, 16), weights),
      ("ResNet-18's last, 32 rows", parts(512, 4, 512, 3, 1, 1, 32), weights),
      ("ResNet-18's last, 33 rows", parts(512, 4, 512, 3, 1, 1, 33), ProductParts.none),
      ("few pixels, few weights", parts(32, 4, 32, 3, 1, 1, 4), ProductParts.none),
      ("groups", parts(20, 12, 50, 5, 1, 0, 32, groups = 2), ProductParts.none),
      ("24 of 32 and 64 of 64", parts(24, 14, 64, 5, 1, 2, 4), ProductParts.none)
    )
  ) test(s"parts of a convolution that are products: $name") {
    assert(found == expected)
  }
}
