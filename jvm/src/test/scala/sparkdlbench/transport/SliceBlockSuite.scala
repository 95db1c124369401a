package sparkdlbench.transport

import org.scalatest.funsuite.AnyFunSuite

class SliceBlockSuite extends AnyFunSuite {
  test("a block's name parses back to the block") {
    for (kind <- Seq(SliceBlock.Gradient, SliceBlock.Weights); step <- Seq(0L, 1L << 40); to <- Seq(-1, 0, 7)) {
      val block = SliceBlock("0a1b2c3d", kind, step, 3, to, 2)
      assert(SliceBlock.parse(block.print) === Some(block))
    }
  }

  test("other names are no blocks") {
    Seq("", "sparkdl", "sparkdl:r:other:0:0:0:0", "sparkdl:r:gradient:x:0:0:0", "broadcast_1", "a:r:weights:0:0:0:0")
      .foreach(text => assert(SliceBlock.parse(text) === None, text))
  }
}
