package sparkdlbench.data

import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.Settings
import sparkdlbench.loss.{IgnoredLabel, Target}

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
      override def bytesRead: Long = stored.bytesRead
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
    val (stored, count) = (store.width, until - from)
    val most = math.max(1, math.min(count, ChangedRows.ValuesAtOnce / math.max(1, stored)))
    val some = new Array[Float](most * stored)
    val (row, changed) = (new Array[Float](stored), new Array[Float](width))
    val (values, found) = (FloatBuffer.wrap(some), LongBuffer.allocate(most))
    var at = from
    while (at < until) {
      val end = math.min(until, at + most)
      store.readAll(ids, at, end, values, found)
      var place = at
      while (place < end) {
        System.arraycopy(some, (place - at) * stored, row, 0, stored)
        change(ids(place), row, changed)
        out.put((first + place - from) * width, changed)
        labels.put(first + place - from, found.get(place - at))
        place += 1
      }
      at = end
    }
  }
}

private object ChangedRows {

  /** Stored values that are read at once: many rows of a store that reads files, and few enough for the second-level cache. */
  val ValuesAtOnce: Int = 1 << 16
}

/** Rows of another store, with `factor` times their weights. */
private[data] final class WeightedRows private (store: RowStore, factor: Double) extends RowStore {
  def rows: Int = store.rows
  def width: Int = store.width
  def label(id: Int): Long = weighed(store.label(id))

  def read(id: Int, at: Int, features: FloatBuffer, labels: LongBuffer): Unit = {
    store.read(id, at, features, labels)
    labels.put(at, weighed(labels.get(at)))
    ()
  }

  override def readAll(ids: Array[Int], from: Int, until: Int, features: FloatBuffer, labels: LongBuffer): Unit = {
    store.readAll(ids, from, until, features, labels)
    (0 until until - from).foreach(at => labels.put(at, weighed(labels.get(at))))
  }

  override def visit(plan: BatchPlan, seed: Long): RowVisit = {
    val stored = store.visit(plan, seed)
    new RowVisit {
      def order: RowOrder = stored.order
      val rows: RowStore = new WeightedRows(stored.rows, factor)
      override def share(from: Int, until: Int): Unit = stored.share(from, until)
      override def bytesRead: Long = stored.bytesRead
      override def close(): Unit = stored.close()
    }
  }

  private def weighed(label: Long): Long = Target.weighted(label.toInt, (Target.weight(label) * factor).toFloat)
}

private[sparkdlbench] object WeightedRows {

  /**
   * The rows with weights whose mean is 1: the mean of the rows' weighted losses is then sum(weight × loss) / sum(weight), as Spark ML's
   * LogisticRegression and LinearRegression minimise it. Reads all labels.
   *
   * @param purpose
   *   `train on` or `test on`
   */
  def of(store: RowStore, purpose: String, description: String): RowStore = {
    var sum = 0.0
    var id = 0
    while (id < store.rows) { sum += Target.weight(store.label(id)).toDouble; id += 1 }
    if (!(sum > 0))
      throw new ConfigurationException(
        s"The weights (`data.weight`) of all ${store.rows} rows to $purpose of the data set ($description) are 0, so no row counts. Give some of them a " +
          "weight above 0, or leave data.weight out."
      )
    new WeightedRows(store, store.rows / sum)
  }

  /**
   * The sets with weights whose mean is 1 over the rows that `loss.ignore_label` leaves: what is learned is then the mean over those, and so
   * is the test loss. Reads all labels.
   */
  def counted(sets: DataSets, settings: Settings): DataSets = IgnoredLabel.of(settings).fold(sets) { ignored =>
    val (_, train) = sums(sets.train, ignored, "train on")
    val (testing, test) = sums(sets.test, ignored, "test on")
    def view(store: RowStore, factor: Double) = if (factor == 1) store else new WeightedRows(store, factor)
    // A step's mean is over all its rows, an evaluation's over those that it has counted.
    sets.copy(train = view(sets.train, sets.train.rows / train), test = view(sets.test, testing / test))
  }

  /** How many rows count, and the sum of their weights. */
  private def sums(store: RowStore, ignored: Int, purpose: String): (Long, Double) = {
    var (rows, sum, id) = (0L, 0.0, 0)
    while (id < store.rows) {
      val label = store.label(id)
      if (label.toInt != ignored) { rows += 1; sum += Target.weight(label).toDouble }
      id += 1
    }
    if (!(sum > 0))
      throw new ConfigurationException(
        s"All ${store.rows} rows to $purpose have the label $ignored (`loss.ignore_label`)${if (rows > 0) " or the weight 0"
          else ""}, so no row counts. " +
          "Leave loss.ignore_label out, or name a label that fewer rows have."
      )
    (rows, sum)
  }
}
