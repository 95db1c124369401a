package sparkdlbench.vector

import org.scalatest.funsuite.AnyFunSuite

import java.nio.{ByteBuffer, ByteOrder}

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

  test("over memory that others hold too, which must be direct, aligned and large enough") {
    val memory = new FlatBuffer(32).bytes
    val buffer = FlatBuffer.over(memory, 20)
    buffer.floats.put(3, 5f)
    assert(memory.getFloat(12) == 5f && buffer.bytes.order == ByteOrder.nativeOrder() && buffer.toArray.length == 20)
    assertThrows[IllegalArgumentException](FlatBuffer.over(memory, 33))
    assertThrows[IllegalArgumentException](FlatBuffer.over(memory.slice(4, 80), 20))
    assertThrows[IllegalArgumentException](FlatBuffer.over(ByteBuffer.allocate(80), 20))
  }
}
