package sparkdlbench.model

import sparkdlbench.common.SplitMix

/**
 * Which values a dropout layer keeps: a pure function of (seed, layer, step, row id, index of the value in the row), so that N
 * workers drop the same values as one does, in every language:
 * {{{
 *   key  = mix(mix(mix(seed + G · (layer + 1)) + G · (step + 1)) + G · (id + 1))        64-bit, wrapping; G, mix: SplitMix64's
 *   a    = (index · 0x9E3779B9) ^ low 32 bits of key                                     32-bit, wrapping, from here on
 *   b    = (a ^ (a >>> 16)) · 0x85EBCA6B + high 32 bits of key
 *   c    = (b ^ (b >>> 13)) · 0xC2B2AE35
 *   kept = ((c ^ (c >>> 16)) >>> 8) >= round(rate · 2²⁴)
 * }}}
 * (the mixer of MurmurHash3, keyed twice). What is kept is multiplied by fp32(1 / (1 − rate)), the rest is 0.
 *
 * @param layer
 *   index of the layer in the specification
 */
final class DropoutMask(seed: Long, layer: Int, rate: Double) {
  private val layerKey = SplitMix.mix(seed + SplitMix.Gamma * (layer + 1L))
  private val threshold = math.round(rate * (1 << 24)).toInt
  private val scale = (1 / (1 - rate)).toFloat

  def rowKey(step: Long, id: Int): Long =
    SplitMix.mix(SplitMix.mix(layerKey + SplitMix.Gamma * (step + 1)) + SplitMix.Gamma * (id + 1L))

  /** Factors of the row's values `from` until `from + count`, to `target`'s first places. */
  def fill(key: Long, from: Int, count: Int, target: Array[Float]): Unit =
    DropoutMask.fill(key.toInt, (key >>> 32).toInt, threshold, scale, from, count, target)
}

private object DropoutMask {

  // A loop over an array with nothing else in sight: C2 vectorises it.
  private def fill(
      low: Int,
      high: Int,
      threshold: Int,
      scale: Float,
      from: Int,
      count: Int,
      target: Array[Float]
  ): Unit = {
    var i = 0
    while (i < count) {
      val first = ((from + i) * 0x9e3779b9) ^ low
      val second = (first ^ (first >>> 16)) * 0x85ebca6b + high
      val third = (second ^ (second >>> 13)) * 0xc2b2ae35
      target(i) = if (((third ^ (third >>> 16)) >>> 8) >= threshold) scale else 0f
      i += 1
    }
  }
}
