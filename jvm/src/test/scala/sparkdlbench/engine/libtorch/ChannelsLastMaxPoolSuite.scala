package sparkdlbench.engine.libtorch

import org.bytedeco.pytorch.global.torch
import org.bytedeco.pytorch.{Scalar, Tensor}
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.model.{LayerSpec, Window}

/** Max-pooling with channels side by side beside the one with channels apart: the same bits. */
class ChannelsLastMaxPoolSuite extends AnyFunSuite {
  private val windows = Seq(
    Window(2, 2, 0, ceil = false),
    Window(3, 2, 0, ceil = true),
    Window(3, 2, 1, ceil = false),
    Window(3, 1, 1, ceil = false)
  )

  // 8 × 300 × 301 values a row: a row is a chunk.
  for (window <- windows; (channels, height, width, rows) <- Seq((8, 9, 8, 5), (21, 8, 11, 1), (8, 300, 301, 2)))
    test(s"the same values and gradients: $channels × $height × $width, $rows rows, $window") {
      EngineFixture.load(EngineFixture.softmax(2, 2), 1).close()
      Tensors.inference {
        torch.manual_seed(3)
        val context = contextOf(window, channels, height, width)
        val input = torch.randn(rows.toLong, channels.toLong, height.toLong, width.toLong)
        // Ties, and what is no number.
        input.narrow(3L, 0L, 3L).round_()
        input.narrow(2L, 1L, 1L).narrow(3L, 1L, 1L).fill_(new Scalar(Float.NaN))
        val outputGradient =
          torch.randn(rows.toLong, channels.toLong, window.size(height).toLong, window.size(width).toLong)
        val found = Seq(new MaxPoolLayer(context), new ChannelsLastMaxPool(context)).map { layer =>
          val (output, inputGradient) = (torch.zeros_like(outputGradient), torch.zeros_like(input))
          val bound = layer.bind(LayerViews(Vector(input), output, outputGradient, Vector(Some(inputGradient))))
          bound.forward()
          bound.backward()
          bound.close()
          layer.close()
          bits(output) ++ bits(inputGradient)
        }
        assert(found.head.exists(_ != 0) && found.head == found(1))
      }
    }

  test("channels apart where they are fewer than a vector holds") {
    val window = windows.head
    assert(Seq(1, 3, 7).forall(channels => !ChannelsLastMaxPool.fits(contextOf(window, channels, 8, 8))))
    assert(ChannelsLastMaxPool.fits(contextOf(window, 8, 8, 8)))
  }

  private def contextOf(window: Window, channels: Int, height: Int, width: Int): LayerContext = LayerContext(
    LayerSpec(
      "pool",
      "max-pool",
      Map[String, Double](
        "kernel" -> window.kernel,
        "stride" -> window.stride,
        "padding" -> window.padding,
        "ceil" -> (if (window.ceil) 1 else 0)
      )
    ),
    0,
    Seq(channels, height, width),
    5,
    1L,
    bf16 = false,
    Map.empty,
    Map.empty,
    new PassState
  )

  private def bits(tensor: Tensor): Seq[Int] = EngineFixture.values(tensor).map(java.lang.Float.floatToIntBits)
}
