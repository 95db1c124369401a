package sparkdlbench.data

import java.nio.{FloatBuffer, LongBuffer}

/** Row `id` is row `pick`(id) of another store. */
private[data] final class PickedRows(store: RowStore, val rows: Int, pick: Int => Int) extends RowStore {
  def width: Int = store.width
  def label(id: Int): Long = store.label(checked(id))
  def read(id: Int, at: Int, features: FloatBuffer, labels: LongBuffer): Unit =
    store.read(checked(id), at, features, labels)
  override def readAll(ids: Array[Int], from: Int, until: Int, features: FloatBuffer, labels: LongBuffer): Unit =
    store.readAll(Array.tabulate(until - from)(at => checked(ids(from + at))), 0, until - from, features, labels)

  private def checked(id: Int): Int = {
    if (id < 0 || id >= rows) throw new IndexOutOfBoundsException(s"row $id of $rows")
    pick(id)
  }
}

/**
 * Rows of another store, each changed by a function of its own values and id.
 *
 * @param change
 *   (id, the row's values, the values to give: `width` of them)
 */
private[data] final class ChangedRows(
    store: RowStore,
    val width: Int,
    change: (Int, Array[Float], Array[Float]) => Unit
) extends RowStore {
  def rows: Int = store.rows
  def label(id: Int): Long = store.label(id)

  override def visit(plan: BatchPlan, seed: Long): RowVisit = {
    val stored = store.visit(plan, seed)
    new RowVisit {
      def order: RowOrder = stored.order
      val rows: RowStore = new ChangedRows(stored.rows, width, change)
      override def share(from: Int, until: Int): Unit = stored.share(from, until)
      override def close(): Unit = stored.close()
    }
  }

  def read(id: Int, at: Int, features: FloatBuffer, labels: LongBuffer): Unit =
    readAll(Array(id), 0, 1, at, features, labels)

  override def readAll(ids: Array[Int], from: Int, until: Int, features: FloatBuffer, labels: LongBuffer): Unit =
    readAll(ids, from, until, 0, features, labels)

  private def readAll(
      ids: Array[Int],
      from: Int,
      until: Int,
      first: Int,
      out: FloatBuffer,
      labels: LongBuffer
  ): Unit = {
    val row = new Array[Float](store.width)
    val changed = new Array[Float](width)
    val label = LongBuffer.allocate(1)
    val (one, whole) = (new Array[Int](1), FloatBuffer.wrap(row))
    var at = from
    while (at < until) {
      one(0) = ids(at)
      store.readAll(one, 0, 1, whole, label)
      change(ids(at), row, changed)
      out.put((first + at - from) * width, changed)
      labels.put(first + at - from, label.get(0))
      at += 1
    }
  }
}
