package sparkdlbench.vector

import java.nio.{ByteBuffer, ByteOrder, FloatBuffer}
import sparkdlbench.common.ConfigurationException

/**
 * A flat, contiguous, direct fp32 buffer that starts on a 64-byte boundary (a cache line; also what MKL asks of buffers for
 * bit-identical results). The layout of a model's parameters and gradients in it is `ParameterLayout`'s alone.
 *
 * @param length
 *   number of fp32 values; 0 is allowed
 * @param file
 *   where other processes of the host can map it
 */
final class FlatBuffer private (val length: Int, memory: ByteBuffer, val file: Option[VectorFile]) {

  /** In memory of its own, all zeros. */
  def this(length: Int) = this(length, FlatBuffer.allocate(length), None)

  /** All bytes, native order, position 0. Do not move its position: take a `duplicate`. */
  val bytes: ByteBuffer = memory.slice(0, length * 4).order(ByteOrder.nativeOrder())

  /** All values, position 0. Do not move its position: take a `duplicate` or a `slice`. */
  val floats: FloatBuffer = bytes.asFloatBuffer()

  /** Values `from` (inclusive) to `until` (exclusive) as a buffer of their own, same memory. */
  def floatSlice(from: Int, until: Int): FloatBuffer = floats.slice(from, until - from)

  def byteSlice(from: Int, until: Int): ByteBuffer =
    bytes.slice(from * 4, (until - from) * 4).order(ByteOrder.nativeOrder())

  def toArray: Array[Float] = { val values = new Array[Float](length); floats.get(0, values); values }
}

object FlatBuffer {
  val Alignment = 64

  /** The most values a buffer can hold. */
  val MaxLength: Int = (Int.MaxValue - Alignment) / 4

  /**
   * In memory that others hold too, such as a mapped file.
   *
   * @param memory
   *   direct, begins on a 64-byte boundary, with room for `length` values
   * @param file
   *   that holds the memory, where its readers find it by name
   */
  def over(memory: ByteBuffer, length: Int, file: Option[VectorFile] = None): FlatBuffer = {
    require(memory.isDirect && memory.alignmentOffset(0, Alignment) == 0, "the memory is not direct, or not aligned")
    require(memory.capacity >= length.toLong * 4, s"${memory.capacity} bytes have no room for $length values")
    new FlatBuffer(length, memory, file)
  }

  /** Aligned, with room for `length` values. */
  private def allocate(length: Int): ByteBuffer = {
    if (length.toLong * 4 + Alignment > Int.MaxValue)
      throw new ConfigurationException(
        s"A flat buffer of $length fp32 values (${length.toLong * 4} bytes) is over the JVM's limit of ${Int.MaxValue} bytes a buffer; " +
          "use a model with fewer than 536 million parameters."
      )
    val memory = ByteBuffer.allocateDirect(math.max(1, length) * 4 + Alignment)
    // Not alignedSlice: it rounds the end down as well, and may leave less than `length` values.
    val misaligned = memory.alignmentOffset(0, Alignment)
    memory.slice((Alignment - misaligned) % Alignment, length * 4)
  }
}
