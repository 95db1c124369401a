package sparkdlbench.codec

import sparkdlbench.vector.Staging

/**
 * IEEE 754 half precision, rounded to nearest, ties to even: 11 bits of precision between 6.1e-5 and 65,504 (a relative
 * error of at most 2^-11), steps of 2^-24 below, infinity from 65,520 on. NaN stays NaN (quiet). Gradients are often
 * small: without scaling, values below 3e-8 become zero.
 *
 * Both directions are free of branches, so that C2 vectorises them. Subnormals are made by an fp32 addition, whose
 * hardware rounding does the shifting: 0.5 + x has steps of 2^-24 (the idea: M. Dukhan, FP16 library; F. Giesen,
 * half_to_float).
 */
final class Fp16 extends Codec with SixteenBit {
  import Fp16._

  def name = "fp16"
  def doc =
    "IEEE half floats, rounded to nearest even, summed in fp32: 2 bytes a value, 11 bits of precision, at most 65,504"

  protected def narrow(bits: Array[Int], size: Int, staging: Staging): Unit = {
    val (shifted, shiftedBits) = (staging.first, staging.secondBits)
    staging.asFloats.get(0, shifted, 0, size)
    addToMagnitudes(shifted, 0.5f, size)
    staging.asFloats.put(0, shifted, 0, size)
    staging.asBits.get(0, shiftedBits, 0, size)
    narrowAll(bits, shiftedBits, size)
  }

  protected def widen(bits: Array[Int], size: Int, staging: Staging): Unit = {
    val (small, smallBits) = (staging.first, staging.secondBits)
    prepareSmall(bits, smallBits, size)
    staging.asBits.put(0, smallBits, 0, size)
    staging.asFloats.get(0, small, 0, size)
    subtract(small, SmallestNormal, size)
    staging.asFloats.put(0, small, 0, size)
    staging.asBits.get(0, smallBits, 0, size)
    widenAll(bits, smallBits, size)
  }
}

private[codec] object Fp16 {
  private val SmallestNormal = java.lang.Float.intBitsToFloat(113 << 23) // 2^-14

  private def addToMagnitudes(values: Array[Float], addend: Float, size: Int): Unit = {
    var i = 0
    while (i < size) { values(i) = Math.abs(values(i)) + addend; i += 1 }
  }

  private def subtract(values: Array[Float], subtrahend: Float, size: Int): Unit = {
    var i = 0
    while (i < size) { values(i) -= subtrahend; i += 1 }
  }

  private def narrowAll(bits: Array[Int], shiftedBits: Array[Int], size: Int): Unit = {
    var i = 0
    while (i < size) {
      val magnitude = bits(i) & 0x7fffffff
      val rounded = (magnitude - (112 << 23) + 0xfff + ((magnitude >>> 13) & 1)) >> 13
      // Masks of all ones where the condition holds.
      val isSmall = (magnitude - (113 << 23)) >> 31
      val isOver = (0x7c00 - rounded) >> 31
      val isNaN = (0x7f800000 - magnitude) >> 31
      val finite = (rounded & ~isOver) | (0x7c00 & isOver)
      val small = shiftedBits(i) - 0x3f000000 // the bits of 0.5f: what is left counts steps of 2^-24
      val number = (finite & ~isSmall) | (small & isSmall)
      val quietNaN = 0x7e00 | ((magnitude >>> 13) & 0x3ff)
      bits(i) = ((bits(i) >>> 16) & 0x8000) | (number & ~isNaN) | (quietNaN & isNaN)
      i += 1
    }
  }

  private def prepareSmall(codes: Array[Int], smallBits: Array[Int], size: Int): Unit = {
    var i = 0
    while (i < size) { smallBits(i) = ((codes(i) & 0x7fff) << 13) + (113 << 23); i += 1 }
  }

  private def widenAll(bits: Array[Int], smallBits: Array[Int], size: Int): Unit = {
    var i = 0
    while (i < size) {
      val magnitude = (bits(i) & 0x7fff) << 13
      val exponent = magnitude & 0x0f800000
      val isSmall = (exponent - 1) >> 31
      val isSpecial = (0x0f7fffff - exponent) >> 31 // infinity or NaN: fp32's largest exponent
      val normal = magnitude + (112 << 23) + (isSpecial & (112 << 23))
      bits(i) = ((bits(i) & 0x8000) << 16) | (normal & ~isSmall) | (smallBits(i) & isSmall)
      i += 1
    }
  }
}
