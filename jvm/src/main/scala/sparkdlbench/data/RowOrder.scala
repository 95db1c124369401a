package sparkdlbench.data

/** The order in which an epoch visits the training rows: each of them once. One thread at a time. */
trait RowOrder {

  /**
   * Writes the ids of the rows at the positions [`from`, `until`) of an epoch's order to `into`(0), `into`(1), …
   *
   * @param epoch
   *   from 0
   */
  def ids(epoch: Int, from: Int, until: Int, into: Array[Int]): Unit
}

/** All rows shuffled among each other (`EpochOrder`); 4 bytes a row. */
private[data] final class ShuffledOrder(seed: Long, rows: Int) extends RowOrder {
  private var epochHeld = -1
  private var order = Array.empty[Int]

  def ids(epoch: Int, from: Int, until: Int, into: Array[Int]): Unit = {
    if (epoch != epochHeld) {
      order = EpochOrder.permutation(seed, epoch, rows)
      epochHeld = epoch
    }
    System.arraycopy(order, from, into, 0, until - from)
  }
}

/** One reader's way through the training rows: in which order it visits them, and where it reads them. One thread. */
trait RowVisit extends AutoCloseable {
  def order: RowOrder
  def rows: RowStore

  /** The positions [`from`, `until`) of a whole step that are the reader's from now on. */
  def share(from: Int, until: Int): Unit = ()

  /** Bytes that were read from files until now; 0 where rows are held. */
  def bytesRead: Long = 0
  override def close(): Unit = ()
}
