package sparkdlbench.engine

import org.scalatest.funsuite.AnyFunSuite

class FlatBufferSuite extends AnyFunSuite {
  test("every length fits, starts on a cache line and is zero at first") {
    (0 to 300).foreach { length =>
      val buffer = new FlatBuffer(length)
      assert(buffer.floats.capacity == length && buffer.bytes.capacity == length * 4)
      assert(buffer.bytes.alignmentOffset(0, FlatBuffer.Alignment) == 0)
      assert(buffer.toArray.forall(_ == 0f))
    }
  }

  test("slices share the memory") {
    val buffer = new FlatBuffer(10)
    buffer.floatSlice(3, 7).put(0, 5f)
    assert(buffer.floats.get(3) == 5f)
    assert(buffer.byteSlice(3, 7).getFloat(0) == 5f)
    assert(buffer.floatSlice(10, 10).remaining == 0)
  }
}
