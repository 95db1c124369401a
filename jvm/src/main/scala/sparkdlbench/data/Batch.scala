package sparkdlbench.data

import java.nio.{FloatBuffer, LongBuffer}

/**
 * Rows ready to compute on.
 *
 * @param rows
 *   number of rows, may be less than the buffers hold; 0 is allowed
 * @param features
 *   direct, native order, rows × features a row, row-major, position 0
 * @param labels
 *   direct, native order, class indices 0 until classes, position 0; of a regression the labels' fp32 bits; with the rows'
 *   weights (`loss.Target`)
 * @param ids
 *   the rows' ids in the data set; with `step` they key what is random in a training step, such as dropout masks
 * @param step
 *   number of the training step from the start of the run
 */
final case class Batch(
    rows: Int,
    features: FloatBuffer,
    labels: LongBuffer,
    ids: RowIds = RowIds.counted,
    step: Long = 0
)

/** Ids of a batch's rows, by their place in it. */
final class RowIds(values: Array[Int], from: Int) {
  def apply(row: Int): Int = if (values == null) row else values(from + row)
}

object RowIds {

  /** 0, 1, 2, … for rows that have no ids. */
  val counted: RowIds = new RowIds(null, 0)
}
