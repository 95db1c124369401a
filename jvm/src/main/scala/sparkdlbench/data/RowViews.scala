package sparkdlbench.data

import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.Settings
import sparkdlbench.loss.{IgnoredLabel, Target}

import java.nio.{FloatBuffer, LongBuffer}

/** Row `id` is row `pick`(id) of another store. */
private[data] final class PickedRows(store: RowStore, val rows: Int, pick: Int => Int) extends RowStore {
  def width: Int = store.width
  override def labels: Int = store.labels
  def label(id: Int): Long = store.label(checked(id))
  override def label(id: Int, at: Int): Long = store.label(checked(id), at)
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
  override def labels: Int = store.labels
  def label(id: Int): Long = store.label(id)
  override def label(id: Int, at: Int): Long = store.label(id, at)

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
    val (stored, count, each) = (store.width, until - from, store.labels)
    val most = math.max(1, math.min(count, ChangedRows.ValuesAtOnce / math.max(1, stored)))
    val some = new Array[Float](most * stored)
    val (row, changed) = (new Array[Float](stored), new Array[Float](width))
    val (values, found) = (FloatBuffer.wrap(some), LongBuffer.allocate(most * each))
    var at = from
    while (at < until) {
      val end = math.min(until, at + most)
      store.readAll(ids, at, end, values, found)
      var place = at
      while (place < end) {
        System.arraycopy(some, (place - at) * stored, row, 0, stored)
        change(ids(place), row, changed)
        out.put((first + place - from) * width, changed)
        var label = 0
        while (label < each) {
          labels.put((first + place - from) * each + label, found.get((place - at) * each + label))
          label += 1
        }
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
  override def labels: Int = store.labels
  def label(id: Int): Long = weighed(store.label(id))
  override def label(id: Int, at: Int): Long = if (at == 0) label(id) else store.label(id, at)

  def read(id: Int, at: Int, features: FloatBuffer, labels: LongBuffer): Unit = {
    store.read(id, at, features, labels)
    val first = at * this.labels
    labels.put(first, weighed(labels.get(first)))
    ()
  }

  override def readAll(ids: Array[Int], from: Int, until: Int, features: FloatBuffer, labels: LongBuffer): Unit = {
    store.readAll(ids, from, until, features, labels)
    (0 until until - from).foreach { row =>
      val first = row * this.labels
      labels.put(first, weighed(labels.get(first)))
    }
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
   * The sets with weights whose mean is 1 over the labels that `loss.ignore_label` leaves: what is learned is then the mean over those, and so
   * is the test loss. Reads all labels.
   */
  def counted(sets: DataSets, settings: Settings): DataSets = if (IgnoredLabel.of(settings).isEmpty) sets
  else {
    val (_, train) = sums(sets.train, settings, "train on")
    val (testing, test) = sums(sets.test, settings, "test on")
    def view(store: RowStore, factor: Double) = if (factor == 1) store else new WeightedRows(store, factor)
    // A step's mean is over all its rows, an evaluation's over those that it has counted.
    sets.copy(train = view(sets.train, sets.train.rows / train), test = view(sets.test, testing / test))
  }

  /** How many rows count, and the sum of their weights, each times the share of its labels that count. */
  private def sums(store: RowStore, settings: Settings, purpose: String): (Long, Double) = {
    val ignored = IgnoredLabel.among(settings)
    var (rows, sum, id) = (0L, 0.0, 0)
    while (id < store.rows) {
      var (counted, at) = (0, 0)
      while (at < store.labels) { if (!ignored(store.label(id, at))) counted += 1; at += 1 }
      if (counted > 0) rows += 1
      sum += Target.weight(store.label(id)).toDouble * counted / store.labels
      id += 1
    }
    if (!(sum > 0))
      throw new ConfigurationException(
        s"All ${store.rows} rows to $purpose have the label ${settings(
            IgnoredLabel.key
          ).get} (`loss.ignore_label`)${if (rows > 0) " or the weight 0" else ""}, so no row counts. " +
          "Leave loss.ignore_label out, or name a label that fewer rows have."
      )
    (rows, sum)
  }
}
