package sparkdlbench.data

import sparkdlbench.common.SplitMix

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

  /** The id, among all rows, of training row `row`. */
  def training(row: Int): Int = row + beforeTraining(row)

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
