package sparkdlbench.loss

import java.nio.LongBuffer

/**
 * A regression's labels where class numbers stand otherwise: in rows that are held, in the files of decoded rows and in batches. The
 * number there is the label's fp32 bits.
 */
object Target {
  def bits(value: Float): Int = java.lang.Float.floatToRawIntBits(value)
  def value(bits: Int): Float = java.lang.Float.intBitsToFloat(bits)

  /** The label of a batch's row. */
  def of(labels: LongBuffer, row: Int): Float = value(labels.get(row).toInt)
}
