package sparkdlbench.data

import sparkdlbench.ConfigurationException
import sparkdlbench.engine.{Batch, FlatBuffer}

import java.nio.{ByteBuffer, ByteOrder, LongBuffer}

/**
 * Fills one rank's preallocated batch. The batch returned is valid until the next call. Used by one thread at a time.
 *
 * @param capacity
 *   the most rows that a call asks for
 */
final class BatchReader(store: RowStore, capacity: Int) {
  if (capacity.toLong * store.width > FlatBuffer.MaxLength)
    throw new ConfigurationException(
      s"A batch of $capacity rows of ${store.width} values a worker is over the limit of ${FlatBuffer.MaxLength} " +
        "values; " +
        "lower `batch` (or `batch_per_worker`), or raise `workers`."
    )
  private val features = new FlatBuffer(capacity * store.width)
  private val labels: LongBuffer =
    ByteBuffer.allocateDirect(math.max(1, capacity) * 8).order(ByteOrder.nativeOrder()).asLongBuffer()
  private val consecutive = new Array[Int](capacity)

  /** The rows whose ids are `ids`[from, until), in this order. */
  def read(ids: Array[Int], from: Int, until: Int): Batch = {
    require(until - from <= capacity, s"${until - from} rows do not fit a batch of $capacity")
    store.readAll(ids, from, until, features.floats, labels)
    Batch(until - from, features.floats, labels)
  }

  /** The rows `from` until `until` in the order of the store, for evaluation. */
  def readRange(from: Int, until: Int): Batch = {
    var at = 0
    while (at < until - from) { consecutive(at) = from + at; at += 1 }
    read(consecutive, 0, until - from)
  }
}

/**
 * One rank's batches of a training run: what `plan` gives to `rank`, in the order of `EpochOrder`. One thread at a
 * time.
 */
final class TrainingReader(store: RowStore, plan: BatchPlan, seed: Long, rank: Int) {
  private val reader = new BatchReader(store, plan.maxShare)
  private var epochRead = -1
  private var order = Array.empty[Int]

  /**
   * @param epoch
   *   from 0
   * @param step
   *   step inside the epoch, from 0
   */
  def read(epoch: Int, step: Int): Batch = {
    if (epoch != epochRead) {
      order = EpochOrder.permutation(seed, epoch, plan.rows)
      epochRead = epoch
    }
    val (from, until) = plan.share(step, rank)
    reader.read(order, from, until)
  }

  /** The batch of a step counted from the start of the run. */
  def read(step: Long): Batch = read(plan.epochOf(step), plan.stepInEpoch(step))
}
