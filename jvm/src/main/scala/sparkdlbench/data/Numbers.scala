package sparkdlbench.data

import scala.util.Try

/** Numbers in text. */
private[data] object Numbers {
  private val MostDigits = 9

  /** The fp32 value of a decimal number, blanks around it allowed; NaN where it is none. */
  def float(text: String): Float = {
    val small = digits(text)
    if (small >= 0) small.toFloat
    else {
      val trimmed = text.trim
      // Java takes suffixes and hexadecimal numbers too; no data set means them.
      if (trimmed.isEmpty || !isDecimal(trimmed)) Float.NaN
      else
        try java.lang.Float.parseFloat(trimmed)
        catch { case _: NumberFormatException => Float.NaN }
    }
  }

  /** A whole number, also as 3.0 or 3e0. */
  def whole(text: String): Option[Int] = {
    val small = digits(text)
    if (small >= 0) Some(small)
    else double(text).filter(n => n == math.rint(n) && math.abs(n) <= Int.MaxValue).map(_.toInt)
  }

  /** The fp64 value of a decimal number, blanks around it allowed; None where it is none, or not finite. */
  def double(text: String): Option[Double] =
    Some(text.trim)
      .filter(word => word.nonEmpty && isDecimal(word))
      .flatMap(word => Try(word.toDouble).toOption)
      .filter(n => !n.isInfinite)

  /** Up to nine digits, which is what most values of an image are; otherwise -1. */
  private def digits(text: String): Int = {
    val length = text.length
    if (length == 0 || length > MostDigits) -1
    else {
      var value = 0
      var i = 0
      while (i < length && value >= 0) {
        val digit = text.charAt(i) - '0'
        value = if (digit >= 0 && digit <= 9) value * 10 + digit else -1
        i += 1
      }
      value
    }
  }

  private def isDecimal(text: String): Boolean =
    text.forall(c => (c >= '0' && c <= '9') || "+-.eE".indexOf(c.toInt) >= 0)
}
