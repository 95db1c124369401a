package sparkdlbench.data

import sparkdlbench.common.SplitMix
import sparkdlbench.loss.Target

import java.util.zip.CRC32C

/**
 * What tells a sequence of rows from others: other values, labels or another order give another value, but for chance. It does not depend
 * on where the sequence is cut into parts: that of two parts behind each other follows from theirs.
 *
 * @param rows
 *   how many they are
 * @param value
 *   the sum of a number for each row, times Factor for each row behind it, modulo 2^64
 */
private[data] final case class RowsDigest(rows: Long, value: Long) extends Serializable {

  /** That of these rows with those of `other` behind them. */
  def +(other: RowsDigest): RowsDigest =
    RowsDigest(rows + other.rows, value * RowsDigest.power(other.rows) + other.value)

  /** 16 hexadecimal digits. */
  def text: String = f"$value%016x"
}

private[data] object RowsDigest {
  val none: RowsDigest = RowsDigest(0, 0)

  /** Odd, so that no row is lost however many come behind it. */
  private val Factor = SplitMix.Gamma

  private def power(exponent: Long): Long = {
    var (result, square, left) = (1L, Factor, exponent)
    while (left > 0) {
      if ((left & 1) == 1) result *= square
      square *= square
      left >>= 1
    }
    result
  }

  /** Takes rows one by one. One thread. */
  final class Running {
    private val checksum = new CRC32C
    private var (rows, value) = (0L, 0L)

    /** @param others labels behind the first */
    def add(row: Array[Byte], label: Int, weight: Float = 1f, others: Array[Int] = Array.emptyIntArray): Unit = {
      checksum.reset()
      checksum.update(row, 0, row.length)
      val mixed =
        others.foldLeft(SplitMix.mix((checksum.getValue << 32) ^ label))((sofar, one) => SplitMix.mix(sofar ^ one))
      value = value * Factor + (if (weight == 1f) mixed else SplitMix.mix(mixed ^ Target.bits(weight)))
      rows += 1
    }

    def result: RowsDigest = RowsDigest(rows, value)
  }
}
