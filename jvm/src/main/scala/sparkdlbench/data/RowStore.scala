package sparkdlbench.data

import java.nio.{FloatBuffer, LongBuffer}

/** Rows by id, held compactly in an executor and shared by its ranks. Thread-safe, immutable. */
trait RowStore {
  def rows: Int

  /** fp32 values a row. */
  def width: Int

  /** Labels a row: more than one where it has several answers. */
  def labels: Int = 1

  /**
   * Writes row `id` as fp32 at `features` [at × width, (at + 1) × width) and its labels at `labels` [at × labels, (at + 1) × labels), as
   * `Batch` has them.
   */
  def read(id: Int, at: Int, features: FloatBuffer, labels: LongBuffer): Unit

  /** The label of row `id` alone, as `Batch` has it; the first one where it has several. */
  def label(id: Int): Long

  /** The label of row `id` at that place among its labels. */
  def label(id: Int, at: Int): Long = {
    require(at == 0, s"label $at of a row that has one")
    label(id)
  }

  /**
   * `read` of the rows whose ids are `ids`[from, until), to places 0, 1, …; stores override it where that is faster.
   */
  def readAll(ids: Array[Int], from: Int, until: Int, features: FloatBuffer, labels: LongBuffer): Unit = {
    var at = from
    while (at < until) { read(ids(at), at - from, features, labels); at += 1 }
  }

  /** A reader's way through these rows, of which `plan` says what a step takes. */
  def visit(plan: BatchPlan, seed: Long): RowVisit = {
    val all = this
    new RowVisit {
      val order: RowOrder = new ShuffledOrder(seed, plan.rows)
      def rows: RowStore = all
    }
  }
}
