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
  override def labels: Int = parts.labels

  def read(id: Int, at: Int, features: FloatBuffer, labels: LongBuffer): Unit =
    load(id, id + 1).read(0, at, features, labels)

  def label(id: Int): Long = parts.label(stored(id))
  override def label(id: Int, at: Int): Long = parts.label(stored(id), at)

  override def readAll(ids: Array[Int], from: Int, until: Int, features: FloatBuffer, labels: LongBuffer): Unit = {
    var at = from
    while (at < until) {
      var end = at + 1
      while (end < until && ids(end) == ids(end - 1) + 1) end += 1
      val run = load(ids(at), ids(at) + end - at)
      run.readAll(
        Array.range(0, end - at),
        0,
        end - at,
        part(features, (at - from) * width),
        part(labels, (at - from) * this.labels)
      )
      at = end
    }
  }

  private def part(features: FloatBuffer, from: Int): FloatBuffer = features.duplicate().position(from).slice()
  private def part(labels: LongBuffer, from: Int): LongBuffer = labels.duplicate().position(from).slice()

  /** The rows [from, until), held. */
  def load(from: Int, until: Int): RowStore = load(Seq((from, until)))

  private def load(ranges: Seq[(Int, Int)]): RowStore = parts.load(lists(ranges))

  /** The rows of several ranges, one behind the other, to the first places of `room`. */
  private[data] def load(ranges: Seq[(Int, Int)], room: RowRoom): Unit = parts.load(lists(ranges), room)
  private[data] def room(rows: Int): RowRoom = parts.room(rows)

  private def lists(ranges: Seq[(Int, Int)]): Seq[Array[Int]] = ranges.map { case (from, until) =>
    if (from < 0 || until > rows) throw new IndexOutOfBoundsException(s"rows $from until $until of $rows")
    val list = new Array[Int](until - from)
    var row = from
    while (row < until) { list(row - from) = stored(row); row += 1 }
    list
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
      override def bytesRead: Long = rows.bytesRead
      override def close(): Unit = rows.close()
    }
  }
}

/**
 * The rows of the shards that one reader visits in the order of `order`: of each shard the window that is visited, and the next one, which
 * a thread reads meanwhile. The rows of a window are read once, in long consecutive pieces, into room that an earlier window had. Rows of
 * other shards, of which an epoch's last step may have a few, are read one by one. One thread.
 */
private[data] final class ShardStream(all: ShardedRows, order: ShardOrder, timeoutSeconds: Int)
    extends RowStore
    with AutoCloseable {
  private final class Window(val epoch: ShardEpoch, val index: Int, room: RowRoom, loading: Future[_]) {
    private var isLoaded = false

    def rows: HeldRowStore = {
      if (!isLoaded) {
        await(loading)
        isLoaded = true
      }
      room.rows
    }
    def isAt(epoch: ShardEpoch, index: Int): Boolean = (this.epoch eq epoch) && this.index == index

    /** Its room for another window. What is read still has to keep it. */
    def free(): Unit = if (loading.isDone) rooms.push(room)
  }
  private val reading: ExecutorService = Executors.newSingleThreadExecutor { (task: Runnable) =>
    val thread = new Thread(task, "sparkdl-rows")
    thread.setDaemon(true)
    thread
  }
  private val current, next = new Array[Window](order.sharding.shards)
  private val rooms = new java.util.ArrayDeque[RowRoom]

  /** Shards whose next window is to be read, after those that are waited for. */
  private val ahead = mutable.ArrayBuffer.empty[Int]
  private lazy val copy = all.room(1).rows.rowCopy

  /** The first and the last shard that are read in windows. */
  var own: Option[(Int, Int)] = None

  def rows: Int = all.rows
  def width: Int = all.width
  override def labels: Int = all.labels
  def label(id: Int): Long = all.label(id)
  override def label(id: Int, at: Int): Long = all.label(id, at)

  def read(id: Int, at: Int, features: FloatBuffer, labels: LongBuffer): Unit = {
    readRow(id, at, features, labels)
    readAhead()
  }

  override def readAll(ids: Array[Int], from: Int, until: Int, features: FloatBuffer, labels: LongBuffer): Unit = {
    var at = from
    while (at < until) { readRow(ids(at), at - from, features, labels); at += 1 }
    readAhead()
  }

  private def readRow(id: Int, at: Int, features: FloatBuffer, labels: LongBuffer): Unit = {
    val shard = order.shardOf(id)
    if (!isOwn(shard)) all.read(id, at, features, labels)
    else {
      val row = id - order.start(shard)
      val window = windowOf(shard, row)
      window.rows.read(window.epoch.placeInWindow(row), at, features, labels, copy)
    }
  }

  private def isOwn(shard: Int): Boolean = own match {
    case Some((first, last)) => shard >= first && shard <= last
    case None => false
  }

  private def windowOf(shard: Int, row: Int): Window = {
    val epoch = order.of(shard, order.epoch)
    val index = epoch.windowOfRow(row)
    val held = current(shard)
    if (held != null && held.isAt(epoch, index)) held
    else {
      val following = next(shard)
      next(shard) = null
      val isReady = following != null && following.isAt(epoch, index)
      if (held != null) held.free()
      if (following != null && !isReady) following.free()
      current(shard) = if (isReady) following else begin(shard, epoch, index)
      ahead += shard
      current(shard)
    }
  }

  private def readAhead(): Unit = if (ahead.nonEmpty) {
    ahead.foreach { shard =>
      val held = current(shard)
      if (next(shard) == null)
        next(shard) =
          if (held.index + 1 < held.epoch.windows) begin(shard, held.epoch, held.index + 1)
          else begin(shard, order.of(shard, held.epoch.epoch + 1), 0)
    }
    ahead.clear()
  }

  private def begin(shard: Int, epoch: ShardEpoch, index: Int): Window = {
    val start = order.start(shard)
    val ids = epoch.blocksOf(index).toSeq.map(epoch.rowsOf).map { case (from, until) => (start + from, start + until) }
    val room = if (rooms.isEmpty) all.room(order.mostInWindow) else rooms.pop()
    new Window(epoch, index, room, reading.submit((() => all.load(ids, room)): Runnable))
  }

  private def await(loading: Future[_]): Unit =
    try { val _ = loading.get(timeoutSeconds.toLong, TimeUnit.SECONDS) }
    catch {
      case failed: ExecutionException => throw failed.getCause
      case cause: TimeoutException =>
        throw new ConfigurationException(
          s"Rows of a sharded data set were not read within $timeoutSeconds seconds (`data.read_timeout`) on host ${Facts.hostName}. Look at " +
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
