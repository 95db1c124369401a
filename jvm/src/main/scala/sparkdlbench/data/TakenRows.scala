package sparkdlbench.data

import sparkdlbench.common.SplitMix
import sparkdlbench.config.Settings

/**
 * Which of `all` training rows a run trains on: `rows` of them in their order, one out of each of as many stretches of
 * the set, whose lengths differ by at most one row. So a set that is sorted by class keeps the classes' proportions.
 * The place in a stretch is drawn, since equal steps would miss whole classes where classes come in turns. A function
 * of (`all`, `rows`) alone: not of seed, workers or transport.
 */
private[data] final class TakenRows private (all: Int, val rows: Int) {
  private def isAll: Boolean = rows == all

  /** The id, among all rows, of the run's row `row`. */
  def apply(row: Int): Int =
    if (isAll) row
    else {
      val (from, until) = (start(row), start(row + 1))
      (from + (((SplitMix.mix(row.toLong) >>> 32) * (until - from)) >>> 32)).toInt
    }

  /** Whether row `id` of all rows is taken; those below 0 are not. */
  def has(id: Int): Boolean = id >= 0 && (isAll || apply(stretchOf(id)) == id)

  /** How many rows are taken of those before row `id` of all, which may be the end. */
  def before(id: Int): Int =
    if (isAll) id
    else {
      val stretch = stretchOf(id)
      if (apply(stretch) < id) stretch + 1 else stretch
    }

  /** These rows of a store of all. */
  def in(store: RowStore): RowStore = if (isAll) store else new PickedRows(store, rows, apply(_))

  private def start(stretch: Int): Long = stretch.toLong * all / rows

  /** The last stretch that begins at row `id` or before it. */
  private def stretchOf(id: Int): Int = math.min(rows - 1L, ((id + 1L) * rows - 1) / all).toInt
}

private[data] object TakenRows {
  def all(rows: Int): TakenRows = new TakenRows(rows, rows)

  /** The share that `data.share` says, rounded to whole rows, at least one. */
  def of(all: Int, settings: Settings): TakenRows = {
    val wanted = math.floor(all * settings(DataKeys.share) + 0.5).toInt
    new TakenRows(all, math.min(all, math.max(1, wanted)))
  }
}
