package sparkdlbench.codec

import sparkdlbench.vector.FloatOps

import java.nio.{ByteBuffer, ByteOrder, FloatBuffer}

/** The values as they are: 4 bytes each. */
final class Fp32 extends Codec {
  def name = "fp32"
  def doc = "32-bit floats as they are: 4 bytes a value, lossless"
  def fixedBytes(count: Int): Option[Long] = Some(maxBytes(count))
  def maxBytes(count: Int): Long = count * 4L
  def lossless = true

  def encode(source: FloatBuffer, target: ByteBuffer): Int = {
    val count = source.remaining()
    floats(target).put(0, source, source.position(), count)
    count * 4
  }

  def decode(source: ByteBuffer, target: FloatBuffer): Unit = {
    check(source, target)
    FloatOps.copy(floats(source), target)
  }

  def decodeAdd(source: ByteBuffer, target: FloatBuffer): Unit = {
    check(source, target)
    FloatOps.addInto(target, floats(source))
  }

  private def check(source: ByteBuffer, target: FloatBuffer): Unit =
    if (source.remaining != target.remaining * 4L) refuse(source, target)

  private def floats(bytes: ByteBuffer): FloatBuffer = bytes.slice().order(ByteOrder.nativeOrder()).asFloatBuffer()
}
