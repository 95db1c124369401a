package sparkdlbench.codec

import sparkdlbench.vector.Staging

/**
 * bfloat16: the upper half of an fp32 value, rounded to nearest, ties to even. Range and subnormals as fp32, 8 bits of
 * precision: a relative error of at most 2^-8 in the normal range. NaN stays NaN (quiet), infinities stay.
 */
final class Bf16 extends Codec with SixteenBit {
  def name = "bf16"
  def doc = "bfloat16, rounded to nearest even, summed in fp32: 2 bytes a value, fp32's range, 8 bits of precision"

  protected def narrow(bits: Array[Int], size: Int, staging: Staging): Unit = {
    var i = 0
    while (i < size) {
      val word = bits(i)
      val rounded = (word + 0x7fff + ((word >>> 16) & 1)) >>> 16
      // All ones where the value is NaN: a carry out of its mantissa would turn it into another value.
      val notANumber = (0x7f800000 - (word & 0x7fffffff)) >> 31
      bits(i) = (rounded & ~notANumber) | (((word >>> 16) | 0x40) & notANumber)
      i += 1
    }
  }

  protected def widen(bits: Array[Int], size: Int, staging: Staging): Unit = {
    var i = 0
    while (i < size) { bits(i) = bits(i) << 16; i += 1 }
  }
}
