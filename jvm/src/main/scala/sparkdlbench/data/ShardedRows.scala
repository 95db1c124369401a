package sparkdlbench.data

import sparkdlbench.common.{ConfigurationException, Facts}

import java.nio.{FloatBuffer, LongBuffer}
import java.util.concurrent.{ExecutionException, ExecutorService, Executors, Future, TimeUnit, TimeoutException}
import scala.collection.mutable

/**
 * Rows of a folder that stay there, and are read when they are asked for; consecutive ones at once. Thread-safe.
 *
 * @param parts
 *   files of the folder
 * @param stored
 *   where row `id` is among the rows of all `parts`; increases with the id
 * @param cut
 *   how a run whose steps take so many rows visits them
 * @param timeoutSeconds
 *   longest wait for rows that are read ahead
 */
private[data] final class ShardedRows(
    parts: PartRows,
    val rows: Int,
    stored: Int => Int,
    cut: Int => Sharding,
    timeoutSeconds: Int
) extends RowStore
    with AutoCloseable {
  def width: Int = parts.width

  def read(id: Int, at: Int, features: FloatBuffer, labels: LongBuffer): Unit =
    load(id, id + 1).read(0, at, features, labels)

  def label(id: Int): Long = parts.label(stored(id)).toLong

  override def readAll(ids: Array[Int], from: Int, until: Int, features: FloatBuffer, labels: LongBuffer): Unit = {
    var at = from
    while (at < until) {
      var end = at + 1
      while (end < until && ids(end) == ids(end - 1) + 1) end += 1
      val run = load(ids(at), ids(at) + end - at)
      (at until end).foreach(place => run.read(place - at, place - from, features, labels))
      at = end
    }
  }

  /** The rows [from, until), held. */
  def load(from: Int, until: Int): RowStore = load(Seq((from, until)))

  /** The rows of several ranges, one behind the other. */
  def load(ranges: Seq[(Int, Int)]): RowStore = {
    ranges.foreach { case (from, until) =>
      if (from < 0 || until > rows) throw new IndexOutOfBoundsException(s"rows $from until $until of $rows")
    }
    parts.load(ranges.map { case (from, until) => Array.tabulate(until - from)(row => stored(from + row)) })
  }

  /** Bytes of rows and labels that were read from files until now. */
  def bytesRead: Long = parts.bytesRead

  /** The same rows for a reader that reads often, and closes them. */
  private[data] def keepingOpen: ShardedRows = new ShardedRows(parts.keepingOpen, rows, stored, cut, timeoutSeconds)
  override def close(): Unit = parts.close()

  override def visit(plan: BatchPlan, seed: Long): RowVisit = {
    val shards = new ShardOrder(rows, plan.batch, cut(plan.batch), seed)
    new RowVisit {
      def order: RowOrder = shards
      val rows = new ShardStream(keepingOpen, shards, timeoutSeconds)
      override def share(from: Int, until: Int): Unit = {
        // Where shards and batch do not divide, a share begins a shard earlier or later from step to step.
        val room = if (plan.batch % shards.sharding.shards == 0) 0 else 1
        rows.own = shards.shardsOf(from, until).map { case (first, last) => (first - room, last + room) }
      }
      override def close(): Unit = rows.close()
    }
  }
}

/**
 * The rows of the shards that one reader visits in the order of `order`: of each shard the window that is visited, and the next one, which
 * is read meanwhile. The rows of a window are read once, in long consecutive pieces. Rows of other shards, of which an epoch's last step may have a few, are read one by one. One thread.
 */
private[data] final class ShardStream(all: ShardedRows, order: ShardOrder, timeoutSeconds: Int)
    extends RowStore
    with AutoCloseable {
  private final class Window(val epoch: Int, val index: Int, val loaded: Future[RowStore]) {
    private val first = mutable.HashMap.empty[Int, Int]
    private var rows = 0
    def place(block: Int): Option[Int] = first.get(block)
    def add(block: Int, count: Int): Unit = { first(block) = rows; rows += count }
    def isAt(epoch: Int, index: Int): Boolean = this.epoch == epoch && this.index == index
  }
  private val reading: ExecutorService = Executors.newSingleThreadExecutor { (task: Runnable) =>
    val thread = new Thread(task, "sparkdl-rows")
    thread.setDaemon(true)
    thread
  }
  private val current, next = new Array[Window](order.sharding.shards)

  /** The first and the last shard that are read in windows. */
  var own: Option[(Int, Int)] = None

  def rows: Int = all.rows
  def width: Int = all.width
  def label(id: Int): Long = all.label(id)

  def read(id: Int, at: Int, features: FloatBuffer, labels: LongBuffer): Unit = {
    val shard = order.shardOf(id)
    if (!own.exists { case (first, last) => shard >= first && shard <= last }) all.read(id, at, features, labels)
    else {
      val row = id - order.start(shard)
      val block = row / order.sharding.blockRows
      val window = windowOf(shard, block)
      val place = window.place(block).get + row % order.sharding.blockRows
      await(window, shard).read(place, at, features, labels)
    }
  }

  private def windowOf(shard: Int, block: Int): Window = {
    val held = current(shard)
    if (held != null && held.epoch == order.epoch && held.place(block).isDefined) held
    else {
      val epoch = order.of(shard, order.epoch)
      val index = epoch.windowOf(block)
      val ready = Option(next(shard)).filter(_.isAt(epoch.epoch, index))
      current(shard) = ready.getOrElse(read(shard, epoch, index))
      next(shard) =
        if (index + 1 < epoch.windows) read(shard, epoch, index + 1)
        else read(shard, order.of(shard, epoch.epoch + 1), 0)
      current(shard)
    }
  }

  private def read(shard: Int, epoch: ShardEpoch, index: Int): Window = {
    val blocks = epoch.blocksOf(index)
    val start = order.start(shard)
    val ranges = blocks.toSeq.map(epoch.rowsOf)
    val ids = ranges.map { case (from, until) => (start + from, start + until) }
    val window = new Window(epoch.epoch, index, reading.submit(() => all.load(ids)))
    blocks.zip(ranges).foreach { case (block, (from, until)) => window.add(block, until - from) }
    window
  }

  private def await(window: Window, shard: Int): RowStore =
    try window.loaded.get(timeoutSeconds.toLong, TimeUnit.SECONDS)
    catch {
      case failed: ExecutionException => throw failed.getCause
      case cause: TimeoutException =>
        throw new ConfigurationException(
          s"Rows of shard $shard of the data set were not read within $timeoutSeconds seconds (`data.read_timeout`) on host ${Facts.hostName}. Look at " +
            "the file system that holds the decoded rows (`data.cache_dir`), or raise the limit.",
          cause
        )
    }

  /** Bytes of rows and labels that were read from files until now. */
  def bytesRead: Long = all.bytesRead

  override def close(): Unit = {
    val _ = reading.shutdownNow()
    all.close()
  }
}
