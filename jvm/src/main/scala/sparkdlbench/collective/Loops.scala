package sparkdlbench.collective

import sparkdlbench.collective.Reduction._

/** `results(i)` becomes the reduction of it and `others(i)`. Each loop stands alone, so that C2 compiles and vectorises it once. */
private[collective] object Loops {

  def floats(reduction: Reduction, results: Array[Float], others: Array[Float], size: Int): Unit = {
    var i = 0
    reduction match {
      case Sum | Average => while (i < size) { results(i) += others(i); i += 1 }
      case Product => while (i < size) { results(i) *= others(i); i += 1 }
      case Min => while (i < size) { results(i) = Math.min(results(i), others(i)); i += 1 }
      case Max => while (i < size) { results(i) = Math.max(results(i), others(i)); i += 1 }
      case BitAnd | BitOr | BitXor => throw undefined(reduction)
    }
  }

  def doubles(reduction: Reduction, results: Array[Double], others: Array[Double], size: Int): Unit = {
    var i = 0
    reduction match {
      case Sum | Average => while (i < size) { results(i) += others(i); i += 1 }
      case Product => while (i < size) { results(i) *= others(i); i += 1 }
      case Min => while (i < size) { results(i) = Math.min(results(i), others(i)); i += 1 }
      case Max => while (i < size) { results(i) = Math.max(results(i), others(i)); i += 1 }
      case BitAnd | BitOr | BitXor => throw undefined(reduction)
    }
  }

  def ints(reduction: Reduction, results: Array[Int], others: Array[Int], size: Int): Unit = {
    var i = 0
    reduction match {
      case Sum => while (i < size) { results(i) += others(i); i += 1 }
      case Product => while (i < size) { results(i) *= others(i); i += 1 }
      case Min => while (i < size) { results(i) = Math.min(results(i), others(i)); i += 1 }
      case Max => while (i < size) { results(i) = Math.max(results(i), others(i)); i += 1 }
      case BitAnd => while (i < size) { results(i) &= others(i); i += 1 }
      case BitOr => while (i < size) { results(i) |= others(i); i += 1 }
      case BitXor => while (i < size) { results(i) ^= others(i); i += 1 }
      case Average => throw undefined(reduction)
    }
  }

  def longs(reduction: Reduction, results: Array[Long], others: Array[Long], size: Int): Unit = {
    var i = 0
    reduction match {
      case Sum => while (i < size) { results(i) += others(i); i += 1 }
      case Product => while (i < size) { results(i) *= others(i); i += 1 }
      case Min => while (i < size) { results(i) = Math.min(results(i), others(i)); i += 1 }
      case Max => while (i < size) { results(i) = Math.max(results(i), others(i)); i += 1 }
      case BitAnd => while (i < size) { results(i) &= others(i); i += 1 }
      case BitOr => while (i < size) { results(i) |= others(i); i += 1 }
      case BitXor => while (i < size) { results(i) ^= others(i); i += 1 }
      case Average => throw undefined(reduction)
    }
  }

  def divide(values: Array[Float], by: Float, size: Int): Unit = {
    var i = 0
    while (i < size) { values(i) /= by; i += 1 }
  }

  private def undefined(reduction: Reduction) = new IllegalStateException(s"${reduction.name} of such values")
}

/** One value with 16 bits as fp32, which is exact, and back, rounded to nearest even. Not-a-numbers stay such. */
private[collective] object SixteenBits {
  private val HalfSteps = java.lang.Float.intBitsToFloat(0x3f000000) // 0.5: adding it leaves steps of 2^-24

  def bfloatToFloat(code: Short): Float = java.lang.Float.intBitsToFloat(code << 16)

  def floatToBfloat(value: Float): Short = {
    val bits = java.lang.Float.floatToRawIntBits(value)
    if (value != value) ((bits >>> 16) | 0x40).toShort
    else ((bits + 0x7fff + ((bits >>> 16) & 1)) >>> 16).toShort
  }

  def halfToFloat(code: Short): Float = {
    val sign = (code & 0x8000) << 16
    val magnitude = code & 0x7fff
    val bits =
      if (magnitude >= 0x7c00) 0x7f800000 | ((magnitude & 0x3ff) << 13)
      else if (magnitude >= 0x400) (magnitude << 13) + (112 << 23)
      else java.lang.Float.floatToRawIntBits(magnitude * SmallestHalf)
    java.lang.Float.intBitsToFloat(sign | bits)
  }

  def floatToHalf(value: Float): Short = {
    val bits = java.lang.Float.floatToRawIntBits(value)
    val magnitude = bits & 0x7fffffff
    val code =
      if (magnitude > 0x7f800000) 0x7e00 | ((magnitude >>> 13) & 0x3ff)
      else if (magnitude < (113 << 23)) // below 2^-14: the addition's own rounding does the shifting
        java.lang.Float.floatToRawIntBits(java.lang.Float.intBitsToFloat(magnitude) + HalfSteps) - 0x3f000000
      else math.min(0x7c00, (magnitude - (112 << 23) + 0xfff + ((magnitude >>> 13) & 1)) >>> 13)
    (((bits >>> 16) & 0x8000) | code).toShort
  }

  private val SmallestHalf = java.lang.Math.scalb(1f, -24)
}
