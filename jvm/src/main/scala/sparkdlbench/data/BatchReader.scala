package sparkdlbench.data

import sparkdlbench.common.ConfigurationException
import sparkdlbench.vector.FlatBuffer

import java.nio.{ByteBuffer, ByteOrder, LongBuffer}

/**
 * Fills one rank's preallocated batch. The batch returned is valid until the next call. Used by one thread at a time.
 *
 * @param capacity
 *   the most rows that a call asks for
 * @param width
 *   fp32 values a row
 */
final class BatchReader(store: RowStore, capacity: Int, width: Int) {
  def this(store: RowStore, capacity: Int) = this(store, capacity, store.width)

  if (capacity.toLong * width > FlatBuffer.MaxLength)
    throw new ConfigurationException(
      s"A batch of $capacity rows of $width values a worker is over the limit of ${FlatBuffer.MaxLength} " +
        "values; " +
        "lower `batch` (or `batch_per_worker`), or raise `workers`."
    )
  private val features = new FlatBuffer(capacity * width)
  private val labels: LongBuffer =
    ByteBuffer
      .allocateDirect(Math.multiplyExact(math.max(1, capacity), 8 * store.labels))
      .order(ByteOrder.nativeOrder())
      .asLongBuffer()
  private val consecutive = new Array[Int](capacity)

  /** The rows whose ids are `ids`[from, until), in this order. */
  def read(ids: Array[Int], from: Int, until: Int): Batch = read(store, ids, from, until)

  /** The same of rows that stand for the store's, `width` values each. */
  private[data] def read(rows: RowStore, ids: Array[Int], from: Int, until: Int): Batch = {
    require(until - from <= capacity, s"${until - from} rows do not fit a batch of $capacity")
    rows.readAll(ids, from, until, features.floats, labels)
    Batch(until - from, features.floats, labels, new RowIds(ids, from))
  }

  /** The rows `from` until `until` in the order of the store, for evaluation. */
  def readRange(from: Int, until: Int): Batch = {
    var at = 0
    while (at < until - from) { consecutive(at) = from + at; at += 1 }
    read(consecutive, 0, until - from)
  }
}

/**
 * One rank's batches of a training run: what `plan` gives to `rank`, in the order in which the store's rows are visited. One thread
 * at a time.
 *
 * @param rowsAtOnce
 *   the most rows that are asked for at once; larger batches are read in parts
 */
final class TrainingReader(
    store: RowStore,
    plan: BatchPlan,
    seed: Long,
    rank: Int,
    augmentation: Option[Augmentation] = None,
    rowsAtOnce: Int = Int.MaxValue
) extends AutoCloseable {
  private val most = math.min(rowsAtOnce, math.min(plan.batch, plan.rows))
  private val visit = store.visit(plan, seed)
  private val reader = new BatchReader(store, most, augmentation.fold(store.width)(_.outShape.product))
  private val ids = new Array[Int](most)
  private var epochRead = -1
  private var rows = visit.rows
  private var dealt: Shares = plan.even
  tellShare()

  /** How steps are dealt out; all ranks change it before the same step. */
  def shares: Shares = dealt
  def shares_=(shares: Shares): Unit = {
    dealt = shares
    tellShare()
  }

  private def tellShare(): Unit = {
    val (from, until) = plan.share(0, rank, dealt)
    visit.share(from, until)
  }

  /**
   * @param epoch
   *   from 0
   * @param step
   *   step inside the epoch, from 0
   */
  def read(epoch: Int, step: Int): Batch = {
    val (from, until) = plan.share(step, rank, shares)
    readPart(epoch, step, 0, until - from)
  }

  private def readPart(epoch: Int, step: Int, first: Int, end: Int): Batch = {
    if (epoch != epochRead) {
      rows = augmentation.fold(visit.rows)(_.training(visit.rows, epoch))
      epochRead = epoch
    }
    val (from, _) = plan.share(step, rank, shares)
    visit.order.ids(epoch, from + first, from + end, ids)
    reader.read(rows, ids, 0, end - first).copy(step = epoch.toLong * plan.stepsPerEpoch + step)
  }

  /** The batch of a step counted from the start of the run. */
  def read(step: Long): Batch = read(plan.epochOf(step), plan.stepInEpoch(step))

  /** How many rows that batch has. */
  def rows(step: Long): Int = {
    val (from, until) = plan.share(plan.stepInEpoch(step), rank, shares)
    until - from
  }

  /** The rows `first` until `end` of that batch. */
  def readPart(step: Long, first: Int, end: Int): Batch =
    readPart(plan.epochOf(step), plan.stepInEpoch(step), first, end)

  /** Bytes of a sharded set that were read from files until now; 0 where the rows are held. */
  def bytesRead: Long = visit.bytesRead

  override def close(): Unit = visit.close()
}
