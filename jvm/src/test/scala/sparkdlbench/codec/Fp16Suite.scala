package sparkdlbench.codec

import org.scalatest.funsuite.AnyFunSuite

class Fp16Suite extends AnyFunSuite with CodecLaws {
  laws(new Fp16, relativeError = Some(math.pow(2, -11)))

  /** The value of a half-precision code, from the definition of the format. */
  private def valueOf(code: Int): Double = {
    val (exponent, mantissa) = ((code >>> 10) & 0x1f, code & 0x3ff)
    val magnitude =
      if (exponent == 0x1f) { if (mantissa == 0) Double.PositiveInfinity else Double.NaN }
      else if (exponent == 0) mantissa * math.pow(2, -24)
      else (1024 + mantissa) * math.pow(2, exponent - 25)
    if ((code & 0x8000) == 0) magnitude else -magnitude
  }

  private val positive = Array.range(0, 0x7c00).map(valueOf)

  test("every one of the 65,536 codes is read as the format defines it, and written back as itself") {
    val finite = (0 until 0x10000).map(valueOf).filterNot(_.isNaN).map(_.toFloat).toArray
    assert(decoded(new Fp16, finite).map(bits).toSeq == finite.map(bits).toSeq)
  }

  test("values between two codes are rounded to the nearest, ties to even") {
    (0 until 0x7bff).foreach { code =>
      val middle = ((positive(code) + positive(code + 1)) / 2).toFloat // exact: one more bit
      val (below, above) = (Math.nextDown(middle), Math.nextUp(middle))
      val even = if (code % 2 == 0) positive(code) else positive(code + 1)
      val found = decodedPair(Array(below, middle, above, -below, -middle, -above))
      assert(
        found.toSeq == Seq(positive(code), even, positive(code + 1), -positive(code), -even, -positive(code + 1)),
        s"code $code"
      )
    }
  }

  private def decodedPair(values: Array[Float]): Array[Double] = decoded(new Fp16, values).map(_.toDouble)

  test("from 65,520 on values become infinity, below 2^-25 zero, and signs stay") {
    val values = Array(
      65519.996f,
      65520f,
      1e30f,
      Float.MaxValue,
      -65520f,
      2.9802322e-8f,
      2.9802326e-8f,
      -1e-30f,
      Float.MinPositiveValue
    )
    val wanted = Array(
      65504f,
      Float.PositiveInfinity,
      Float.PositiveInfinity,
      Float.PositiveInfinity,
      Float.NegativeInfinity,
      0f,
      5.9604645e-8f,
      -0f,
      0f
    )
    assert(decoded(new Fp16, values).map(bits).toSeq == wanted.map(bits).toSeq)
  }

  test("NaN stays NaN whatever its bits") {
    val values = Array(0x7f800001, 0xff800001, 0x7fffffff, 0xffffffff, 0x7fc00000).map(java.lang.Float.intBitsToFloat)
    assert(decoded(new Fp16, values).forall(_.isNaN))
  }
}
