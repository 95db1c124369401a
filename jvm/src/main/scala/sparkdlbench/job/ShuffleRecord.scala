package sparkdlbench.job

import sparkdlbench.codec.Codec
import sparkdlbench.common.RunFailedException
import sparkdlbench.vector.Slices

import java.nio.{ByteBuffer, ByteOrder}

/**
 * One record of a shuffle among ranks: a piece's encoded values behind a header of 16 bytes (step 8, sender 4, number of the
 * piece 4), in the byte order of the hosts.
 */
private[sparkdlbench] object ShuffleRecord {
  val HeaderBytes = 16

  /** A record of `payload` bytes whose values are still to be written, from `HeaderBytes` on. */
  def allocate(step: Long, from: Int, piece: Int, payload: Int): Array[Byte] = {
    val record = new Array[Byte](Math.addExact(HeaderBytes, payload))
    wrap(record).putLong(0, step).putInt(8, from).putInt(12, piece)
    record
  }
  def step(record: Array[Byte]): Long = wrap(record).getLong(0)
  def from(record: Array[Byte]): Int = wrap(record).getInt(8)
  def piece(record: Array[Byte]): Int = wrap(record).getInt(12)
  def payload(record: Array[Byte]): ByteBuffer =
    ByteBuffer.wrap(record, HeaderBytes, record.length - HeaderBytes).slice().order(ByteOrder.nativeOrder())

  private def wrap(record: Array[Byte]): ByteBuffer = ByteBuffer.wrap(record).order(ByteOrder.nativeOrder())
}

/** Values `from` until `until` of the whole vector, which belong to slice `slice`. */
private[sparkdlbench] final case class VectorPiece(slice: Int, from: Int, until: Int) {
  def length: Int = until - from
}

private[sparkdlbench] object VectorPiece {

  /** All pieces of all slices, in order; none over `limit` bytes (but each of one value at least). */
  def all(slices: Slices, codec: Codec, limit: Int): IndexedSeq[VectorPiece] = {
    val perPiece = math.max(1L, limit.toLong * 1024 / codec.maxBytes(1024)).min(Int.MaxValue.toLong).toInt
    for {
      slice <- 0 until slices.parts
      from <- slices.from(slice) until slices.until(slice) by perPiece
    } yield VectorPiece(slice, from, math.min(slices.until(slice).toLong, from.toLong + perPiece).toInt)
  }
}

/**
 * Brings parts that arrive in any order into the order of their senders, piece by piece, and tells what is missing.
 *
 * @param senders
 *   how many senders each piece has
 * @param use
 *   called with (piece, record), for each piece in the order of senders 0, 1, 2, …
 */
private[sparkdlbench] final class InSenderOrder(senders: Int => IndexedSeq[Int], pieces: Seq[Int])(
    use: (Int, Array[Byte]) => Unit
) {
  private final class Queue(val expected: IndexedSeq[Int]) {
    val waiting = new Array[Array[Byte]](expected.size)
    var next = 0
  }
  private val queues = pieces.map(piece => piece -> new Queue(senders(piece))).toMap

  def add(step: Long, record: Array[Byte]): Unit = {
    val (from, piece) = (ShuffleRecord.from(record), ShuffleRecord.piece(record))
    val place = queues.get(piece).fold(-1)(_.expected.indexOf(from))
    if (ShuffleRecord.step(record) != step || place < 0)
      throw new IllegalStateException(
        s"a record of step ${ShuffleRecord.step(record)}, rank $from, piece $piece arrived where step $step was awaited"
      )
    val queue = queues(piece)
    if (place < queue.next || queue.waiting(place) != null)
      throw new IllegalStateException(s"piece $piece of rank $from arrived twice in step $step")
    queue.waiting(place) = record
    while (queue.next < queue.expected.size && queue.waiting(queue.next) != null) {
      use(piece, queue.waiting(queue.next))
      queue.waiting(queue.next) = null
      queue.next += 1
    }
  }

  /** Fails where something did not arrive: a sum is never partial. */
  def complete(what: String): Unit = {
    val missing = queues.toSeq.sortBy(_._1).flatMap { case (piece, queue) =>
      queue.expected.indices
        .filter(i => i >= queue.next && queue.waiting(i) == null)
        .map(i => (queue.expected(i), piece))
    }
    missing.headOption.foreach { case (from, piece) =>
      throw new RunFailedException(
        s"$what: ${missing.size} records did not arrive, the first of them piece $piece of rank $from. The shuffle manager " +
          "lost what that rank wrote; see the logs of its executor and of the shuffle service."
      )
    }
  }
}
