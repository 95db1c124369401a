package sparkdlbench.loss

import java.nio.LongBuffer

/**
 * A regression's labels where class numbers stand otherwise: in rows that are held, in the files of decoded rows and in batches. The
 * number there is the label's fp32 bits.
 *
 * The 64 bits that a batch has for a label hold the row's weight, too, in the upper half: by how many bits it differs from 1, so that a label
 * alone has weight 1. Where the sign of a 32-bit label was carried over, the upper half is -1, which no weight gives: weights are not negative.
 */
object Target {
  def bits(value: Float): Int = java.lang.Float.floatToRawIntBits(value)
  def value(bits: Int): Float = java.lang.Float.intBitsToFloat(bits)

  /** The label of a batch's row. */
  def of(labels: LongBuffer, row: Int): Float = value(labels.get(row).toInt)

  /** What the row's loss is multiplied by. */
  def weight(labels: LongBuffer, row: Int): Float = weight(labels.get(row))
  def weight(label: Long): Float = {
    val upper = (label >> 32).toInt
    if (upper == 0 || upper == -1) 1f else value(upper ^ One)
  }

  /** A label with a weight of at least 0. */
  def weighted(label: Int, weight: Float): Long = weightedBy(label, weightBits(weight))

  /** The same with what `weightBits` gave. */
  def weightedBy(label: Int, weightBits: Int): Long = (label & 0xffffffffL) | (weightBits.toLong << 32)
  def weightBits(weight: Float): Int = bits(weight) ^ One
  private val One = bits(1f)
}
