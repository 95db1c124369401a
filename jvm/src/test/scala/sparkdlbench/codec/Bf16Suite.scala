package sparkdlbench.codec

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.RunFailedException

import java.math.BigDecimal

class Bf16Suite extends AnyFunSuite with CodecLaws {
  laws(new Bf16, relativeError = Some(math.pow(2, -8)))

  private def fromBits(word: Int): Float = java.lang.Float.intBitsToFloat(word)

  /** The nearest value whose lower half is zero, found by comparing the two neighbours exactly. */
  private def nearest(value: Float): Float = {
    val below = bits(value) & 0xffff0000
    val above = below + 0x10000 // away from zero; past the largest bfloat16 these are infinity's bits
    val exact = new BigDecimal(value.toDouble).abs
    val low = exact.subtract(new BigDecimal(fromBits(below).toDouble).abs)
    val highMagnitude =
      if (fromBits(above).isInfinite) new BigDecimal(math.pow(2, 128)) else new BigDecimal(fromBits(above).toDouble).abs
    val high = highMagnitude.subtract(exact)
    low.compareTo(high) match {
      case 0 => if ((below & 0x10000) == 0) fromBits(below) else fromBits(above)
      case order => if (order < 0) fromBits(below) else fromBits(above)
    }
  }

  test("every value is rounded to the nearest, ties to even, from subnormals to the largest") {
    val random = new scala.util.Random(3)
    val anyBits = Array.fill(200000)(fromBits(random.nextInt())).filterNot(value => value.isNaN || value.isInfinite)
    val ties = Array.tabulate(0x7f80)(upper => fromBits((upper << 16) | 0x8000)).filterNot(_.isNaN)
    val values = anyBits ++ ties ++ ties.map(-_) ++ special.filterNot(value => value.isNaN || value.isInfinite)
    val found = decoded(new Bf16, values)
    values.indices.foreach(i => assert(bits(found(i)) == bits(nearest(values(i))), s"${values(i)} became ${found(i)}"))
  }

  test("NaN stays NaN whatever its bits, infinities and signed zeros stay") {
    val values = Array(0x7f800001, 0xff800001, 0x7fffffff, 0xffffffff, 0x7fc00000, 0x7f80ffff).map(fromBits)
    assert(decoded(new Bf16, values).forall(_.isNaN))
    val exact = Array(Float.PositiveInfinity, Float.NegativeInfinity, 0f, -0f)
    assert(decoded(new Bf16, exact).map(bits).toSeq == exact.map(bits).toSeq)
  }

  test("the sum of many messages is made in fp32") {
    val sum = direct(Array(256f))
    (1 to 256).foreach(_ => new Bf16().decodeAdd(encoded(new Bf16, Array(1f)), sum))
    assert(sum.get(0) == 512f) // bfloat16 sums would stay at 256
  }

  test("a message of another length is refused") {
    intercept[RunFailedException](new Bf16().decode(encoded(new Bf16, ordinary(5)), direct(ordinary(6))))
  }
}
