package sparkdlbench.data

import sparkdlbench.common.SplitMix
import sparkdlbench.vector.Slices

/**
 * How a set is cut, where no executor holds it whole: into `shards` consecutive shards of equal size (but for one row), and each
 * shard into blocks of `blockRows` consecutive rows, which are read at once and shuffled among each other `blocksPerWindow` at a
 * time. Nothing here may depend on the number of workers.
 */
final case class Sharding(shards: Int, blockRows: Int, blocksPerWindow: Int) {
  require(shards >= 1 && blockRows >= 1 && blocksPerWindow >= 1, toString)
}

/**
 * An epoch's order of a set of which each executor reads only its own part, whatever the number of executors: elastic and
 * deterministic, as the canonical nodes of MosaicML's StreamingDataset are (`num_canonical_nodes`, shuffling `py1br`).
 *
 * Shard c visits its own rows in an order of its own (`ShardEpoch`). The shards are visited in turns, a row each, and the rows of one
 * step stand in the order of the shards. So the rows of a step are the same for any number of workers; each step takes as many
 * rows, but for one, from each shard; and the consecutive share of a step that a rank computes is of the same few shards in each
 * step: of N workers a rank reads about one N-th of the set, in long consecutive pieces.
 *
 * @param rows
 *   training rows, at least `sharding.shards`
 * @param batch
 *   rows of a step
 */
final class ShardOrder(val rows: Int, batch: Int, val sharding: Sharding, seed: Long) extends RowOrder {
  require(rows >= sharding.shards, s"$rows rows, $sharding")
  private val shards = sharding.shards
  private val slices = Slices(rows, shards)

  /** Of each shard the epochs that are under way, the later one at its parity. */
  private val epochs = Array.ofDim[ShardEpoch](shards, 2)
  private var visited = 0

  /** The epoch whose ids were asked for last. */
  def epoch: Int = visited

  /** The first row of a shard. */
  def start(shard: Int): Int = slices.from(shard)
  def size(shard: Int): Int = slices.size(shard)

  /** The most rows that a window has. */
  def mostInWindow: Int =
    math.min(slices.maxSize.toLong, sharding.blockRows.toLong * sharding.blocksPerWindow).toInt
  def shardOf(id: Int): Int = {
    val (least, longer) = (rows / shards, rows % shards)
    val inLonger = longer.toLong * (least + 1)
    if (id < inLonger) id / (least + 1) else longer + ((id - inLonger) / least).toInt
  }

  /** The order of one shard's rows in one epoch. */
  def of(shard: Int, epoch: Int): ShardEpoch = {
    val kept = epochs(shard)(epoch & 1)
    if (kept != null && kept.epoch == epoch) kept
    else {
      val state =
        SplitMix.mix(SplitMix.mix(seed ^ SplitMix.mix(epoch.toLong)) ^ SplitMix.mix(ShardOrder.Stream ^ shard))
      val made = new ShardEpoch(epoch, slices.size(shard), sharding, state)
      epochs(shard)(epoch & 1) = made
      made
    }
  }

  def ids(epoch: Int, from: Int, until: Int, into: Array[Int]): Unit = {
    visited = epoch
    eachPiece(from, until) { (shard, index, at) => into(at) = start(shard) + of(shard, epoch)(index) }
  }

  /** The first and the last shard, of those that the positions [`from`, `until`) are of; None where there are no positions. */
  def shardsOf(from: Int, until: Int): Option[(Int, Int)] = {
    var (first, last) = (Int.MaxValue, -1)
    eachPiece(from, until) { (shard, _, _) =>
      first = math.min(first, shard)
      last = math.max(last, shard)
    }
    if (last < 0) None else Some((first, last))
  }

  /** @param use of (shard, index in the shard's own order, place among the positions asked for) */
  private def eachPiece(from: Int, until: Int)(use: (Int, Int, Int) => Unit): Unit = {
    var at = from
    while (at < until) {
      val start = at - at % batch
      val end = math.min(rows.toLong, start.toLong + batch).toInt
      eachOfStep(start, end, at - start, math.min(until, end) - start, at - from)(use)
      at = math.min(until, end)
    }
  }

  /** Of the step that takes the turns [`start`, `end`): turn q is shard q mod `shards`'s. */
  private def eachOfStep(
      start: Int,
      end: Int,
      from: Int,
      until: Int,
      first: Int
  )(use: (Int, Int, Int) => Unit): Unit = {
    val (each, more, offset) = ((end - start) / shards, (end - start) % shards, start % shards)
    var (shard, before) = (0, 0)
    while (before < until && shard < shards) {
      val behind = shard - offset
      val count = each + (if ((if (behind < 0) behind + shards else behind) < more) 1 else 0)
      val earlier = if (start > shard) (start - 1 - shard) / shards + 1 else 0
      var place = math.max(from, before)
      val last = math.min(until, before + count)
      while (place < last) {
        use(shard, earlier + place - before, first + place - from)
        place += 1
      }
      before += count
      shard += 1
    }
  }
}

private object ShardOrder {

  /** Keeps these draws apart from those of the other orders. */
  val Stream = 0x7368617264L
}

/**
 * One shard's order in one epoch: its blocks are shuffled, then cut into windows of `blocksPerWindow` blocks, and the rows of a window
 * are shuffled among each other. Whoever visits the rows in this order needs one window at a time. One thread.
 *
 * @param rows
 *   of the shard
 * @param state
 *   what the draws are keyed with
 */
final class ShardEpoch(val epoch: Int, rows: Int, sharding: Sharding, state: Long) {
  private val blockRows = sharding.blockRows
  private val blocks = ((rows.toLong + blockRows - 1) / blockRows).toInt
  private val order = FisherYates.permutation(blocks, state)
  private val place = {
    val places = new Array[Int](blocks)
    order.indices.foreach(at => places(order(at)) = at)
    places
  }

  // The shard's last block may be shorter; it stands anywhere in the order.
  private val lastRows = rows - (blocks - 1) * blockRows
  private val short = place(blocks - 1)

  private var window = -1
  private var first = 0
  private var inWindow = Array.empty[Int]

  def windows: Int = (blocks + sharding.blocksPerWindow - 1) / sharding.blocksPerWindow
  def windowOf(block: Int): Int = place(block) / sharding.blocksPerWindow

  /** The window that has a row of the shard. */
  def windowOfRow(row: Int): Int = windowOf(row / blockRows)

  /** The row's place among the rows of its window, where its blocks lie one behind the other as `blocksOf` gives them. */
  def placeInWindow(row: Int): Int = {
    val at = place(row / blockRows)
    before(at) - before(at - at % sharding.blocksPerWindow) + row % blockRows
  }

  /** The blocks of a window, in the order in which they are drawn. */
  def blocksOf(window: Int): Array[Int] =
    order.slice(window * sharding.blocksPerWindow, (window + 1) * sharding.blocksPerWindow)

  /** The rows [from, until) of the shard that a block has. */
  def rowsOf(block: Int): (Int, Int) = {
    val from = block * blockRows
    (from, if (block == blocks - 1) rows else from + blockRows)
  }

  /** The row of the shard that is visited as the `index`-th. */
  def apply(index: Int): Int = {
    val wanted = blockAt(index) / sharding.blocksPerWindow
    if (wanted != window) open(wanted)
    val at = first + inWindow(index - first)
    val block = blockAt(at)
    order(block) * blockRows + at - before(block)
  }

  private def open(wanted: Int): Unit = {
    first = before(wanted * sharding.blocksPerWindow)
    val end = before(math.min(blocks.toLong, (wanted + 1L) * sharding.blocksPerWindow).toInt)
    inWindow = FisherYates.permutation(end - first, SplitMix.mix(state ^ SplitMix.mix(wanted + 1L)))
    window = wanted
  }

  /** Rows of the blocks before the `at`-th of the order. */
  private def before(at: Int): Int = if (at <= short) at * blockRows else (at - 1) * blockRows + lastRows

  /** The place in the blocks' order of the block that the `index`-th row is of, before rows are shuffled. */
  private def blockAt(index: Int): Int =
    if (index < short * blockRows) index / blockRows
    else if (index < short * blockRows + lastRows) short
    else short + 1 + (index - short * blockRows - lastRows) / blockRows
}
