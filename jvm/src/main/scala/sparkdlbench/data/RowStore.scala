package sparkdlbench.data

import java.nio.{FloatBuffer, LongBuffer}

/** Rows by id, held compactly in an executor and shared by its ranks. Thread-safe, immutable. */
trait RowStore {
  def rows: Int

  /** fp32 values a row. */
  def width: Int

  /** Writes row `id` as fp32 at `features` [at × width, (at + 1) × width) and its label at `labels`(at), as `Batch` has it. */
  def read(id: Int, at: Int, features: FloatBuffer, labels: LongBuffer): Unit

  /** The label of row `id` alone, as `Batch` has it. */
  def label(id: Int): Long

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
