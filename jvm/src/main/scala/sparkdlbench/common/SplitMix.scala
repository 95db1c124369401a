package sparkdlbench.common

/**
 * SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, OOPSLA 2014). Written out here
 * because the row order must be the same on every JDK and in every language.
 */
final class SplitMix(seed: Long) {
  private var state = seed

  def nextLong(): Long = {
    state += SplitMix.Gamma
    SplitMix.mix(state)
  }

  /** A whole number from 0 until `bound`; its bias is below bound / 2^32. */
  def nextInt(bound: Int): Int = (((nextLong() >>> 32) * bound) >>> 32).toInt
}

object SplitMix {
  val Gamma = 0x9e3779b97f4a7c15L

  /** A bijection of 64 bits in which every input bit reaches every output bit. */
  def mix(value: Long): Long = {
    val first = (value ^ (value >>> 30)) * 0xbf58476d1ce4e5b9L
    val second = (first ^ (first >>> 27)) * 0x94d049bb133111ebL
    second ^ (second >>> 31)
  }
}
