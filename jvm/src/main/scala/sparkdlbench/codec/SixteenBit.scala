package sparkdlbench.codec

import sparkdlbench.vector.{FloatOps, Staging}

import java.nio.{ByteBuffer, ByteOrder, FloatBuffer}

/**
 * A codec of two bytes a value. Values travel in chunks of `Staging.Length`; in a chunk of 2m values, word j of 32 bits
 * holds value j in its lower half and value j + m in its upper half, and an odd last value follows in two bytes.
 * Neighbours are not packed together because C2 of JDK 17 vectorises only loops whose arrays have one element size and
 * stride 1.
 */
private[codec] trait SixteenBit extends Codec {

  /** Replaces the first `size` values of `bits` (fp32 bits, also still in `staging.asFloats`) by 16-bit codes. */
  protected def narrow(bits: Array[Int], size: Int, staging: Staging): Unit

  /** Replaces the first `size` codes of `bits` by fp32 bits. */
  protected def widen(bits: Array[Int], size: Int, staging: Staging): Unit

  def fixedBytes(count: Int): Option[Long] = Some(maxBytes(count))
  def maxBytes(count: Int): Long = count * 2L
  def lossless = false

  def encode(source: FloatBuffer, target: ByteBuffer): Int = {
    val bytes = target.slice().order(ByteOrder.nativeOrder())
    val words = bytes.asIntBuffer()
    val staging = Staging.get()
    FloatOps.eachChunk(source.remaining()) { (at, size) =>
      val bits = staging.bitsOf(source, source.position() + at, size)
      narrow(bits, size, staging)
      val half = size / 2
      SixteenBit.join(bits, staging.secondBits, half)
      words.put(at / 2, staging.secondBits, 0, half)
      if (size % 2 == 1) bytes.putShort((at + size - 1) * 2, bits(size - 1).toShort)
    }
    source.remaining() * 2
  }

  def decode(source: ByteBuffer, target: FloatBuffer): Unit = {
    val staging = Staging.get()
    decodeChunks(source, target, staging) { (at, size) =>
      target.put(target.position() + at, staging.asFloats, 0, size)
    }
  }

  def decodeAdd(source: ByteBuffer, target: FloatBuffer): Unit = {
    val staging = Staging.get()
    val (sums, values) = (staging.first, staging.second)
    decodeChunks(source, target, staging) { (at, size) =>
      staging.asFloats.get(0, values, 0, size)
      target.get(target.position() + at, sums, 0, size)
      FloatOps.addArrays(sums, values, size)
      target.put(target.position() + at, sums, 0, size)
    }
  }

  /** Calls `use`(offset, size) for each chunk, whose values are then in `staging.asFloats`. */
  private def decodeChunks(source: ByteBuffer, target: FloatBuffer, staging: Staging)(use: (Int, Int) => Unit): Unit = {
    val bytes = source.slice().order(ByteOrder.nativeOrder())
    if (bytes.remaining() != target.remaining() * 2L)
      refuse(source, target)
    val words = bytes.asIntBuffer()
    val bits = staging.firstBits
    FloatOps.eachChunk(target.remaining()) { (at, size) =>
      val half = size / 2
      words.get(at / 2, staging.secondBits, 0, half)
      SixteenBit.split(staging.secondBits, bits, half)
      if (size % 2 == 1) bits(size - 1) = bytes.getShort((at + size - 1) * 2) & 0xffff
      widen(bits, size, staging)
      staging.asBits.put(0, bits, 0, size)
      use(at, size)
    }
  }
}

private[codec] object SixteenBit {

  // The upper halves are copied to the start of an array of their own: C2 leaves loops over codes(j + half) as they
  // are.

  private def join(codes: Array[Int], upper: Array[Int], half: Int): Unit = {
    System.arraycopy(codes, half, upper, 0, half)
    var j = 0
    while (j < half) { upper(j) = (codes(j) & 0xffff) | (upper(j) << 16); j += 1 }
  }

  private def split(words: Array[Int], codes: Array[Int], half: Int): Unit = {
    splitUpper(words, codes, half)
    System.arraycopy(codes, 0, codes, half, half)
    splitLower(words, codes, half)
  }

  private def splitLower(words: Array[Int], codes: Array[Int], half: Int): Unit = {
    var j = 0
    while (j < half) { codes(j) = words(j) & 0xffff; j += 1 }
  }

  private def splitUpper(words: Array[Int], codes: Array[Int], half: Int): Unit = {
    var j = 0
    while (j < half) { codes(j) = words(j) >>> 16; j += 1 }
  }
}
