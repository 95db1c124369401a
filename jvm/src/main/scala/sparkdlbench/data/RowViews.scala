package sparkdlbench.data

import sparkdlbench.common.SplitMix

import java.nio.{FloatBuffer, LongBuffer}

/** Row `id` is row `pick`(id) of another store. */
private[data] final class PickedRows(store: RowStore, val rows: Int, pick: Int => Int) extends RowStore {
  def width: Int = store.width
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

/**
 * Which of `all` rows of one set train and which test, where no rows of their own are named for testing: of each stretch of
 * `every` rows one tests, of what is left at the end none. The place in a stretch is drawn: were it always the same, whole
 * classes would only test where classes come in turns. A function of (`all`, `every`) alone: not of seed, workers or transport.
 */
private[data] final class EveryNth(all: Int, every: Int) {

  /** How many rows test. */
  val testRows: Int = all / every

  /** The id, among all rows, of test row `row`. */
  def apply(row: Int): Int = row * every + place(row)

  /** Whether row `id` of all tests. */
  def tests(id: Int): Boolean = id / every < testRows && apply(id / every) == id

  /** Whether row `id` of all is held: it tests, or is one of the training rows that are taken. */
  def holds(id: Int, taken: TakenRows): Boolean = tests(id) || taken.has(id - before(id))

  /**
   * The rows that test, and of the others those that are taken, in order.
   *
   * @param store
   *   the rows that are held
   */
  def split(store: RowStore, taken: TakenRows): DataSets = DataSets(
    new PickedRows(store, taken.rows, row => row + beforeTraining(taken(row))),
    // Before test row t of all come as many that train as its id is above t.
    new PickedRows(store, testRows, row => row + taken.before(apply(row) - row))
  )

  /** How many rows test of those before row `id` of all. */
  private def before(id: Int): Int = {
    val stretch = id / every
    if (stretch < testRows && apply(stretch) < id) stretch + 1 else stretch
  }

  /** How many rows test of those before training row `row` of all: each stretch has `every` − 1 that train. */
  private def beforeTraining(row: Int): Int = {
    val stretch = row / (every - 1)
    if (stretch < testRows && row % (every - 1) >= place(stretch)) stretch + 1 else stretch
  }

  private def place(stretch: Int): Int =
    (((SplitMix.mix(EveryNth.Stream ^ stretch.toLong) >>> 32) * every) >>> 32).toInt
}

private[data] object EveryNth {

  /** Keeps these draws apart from those of `TakenRows`. */
  private val Stream = 0x74657374L
}
