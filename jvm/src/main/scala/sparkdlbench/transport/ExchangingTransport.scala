package sparkdlbench.transport

import sparkdlbench.engine.RankExchange
import sparkdlbench.vector.FlatBuffer

import java.nio.ByteOrder

/**
 * A transport with a lane more from every rank to every other, on which the ranks show each other small vectors in the middle of
 * a pass. One round: every rank sends its vector to the others, (size − 1) · 4 · length bytes, counted as payload. The answer holds the
 * vectors in the order of the ranks, so what is made of it is the same bits everywhere.
 *
 * Rank r sends message s + 2 after it has had message s + 1 of all others, which they sent after they had finished with its message s:
 * two slots a lane are enough.
 *
 * @param lengths
 *   of the vectors of one step: their number says how many are sent before their memory is used again
 */
final class ExchangingTransport(inner: Transport, lengths: Seq[Int])
    extends ForwardingTransport(inner)
    with RankExchange {
  private val longest = lengths.max
  private val outgoing = IndexedSeq.fill(lengths.size)(new FlatBuffer(longest))
  private val gathered = new Array[Float](Math.multiplyExact(size, longest))
  private var lanes: IndexedSeq[Lane] = IndexedSeq.empty
  private var sequence = 0L

  protected def added(first: Int): Seq[Lane] = {
    lanes = ExchangingTransport.pairs(size).zipWithIndex.map { case ((from, to), index) =>
      Lane(first + index, from, to, longest * java.lang.Float.BYTES, "layer statistics")
    }
    lanes
  }

  def gather(values: Array[Float]): Array[Float] = {
    require(values.length <= longest, s"${values.length} values, and the longest vector was to have $longest")
    val slot = (sequence % outgoing.length).toInt
    if (slot == 0) inner.flush()
    outgoing(slot).floats.put(0, values)
    val message = outgoing(slot).byteSlice(0, values.length)
    lanes.foreach(lane => if (lane.from == rank) inner.send(lane, sequence, message))
    System.arraycopy(values, 0, gathered, rank * values.length, values.length)
    lanes.foreach(lane => if (lane.to == rank) take(lane, values.length))
    sequence += 1
    gathered
  }

  private def take(lane: Lane, length: Int): Unit = {
    val message = inner.receive(lane, sequence).duplicate().order(ByteOrder.nativeOrder()).asFloatBuffer()
    if (message.remaining() != length)
      throw new IllegalStateException(
        s"rank ${lane.from} sent ${message.remaining()} values where rank $rank has $length"
      )
    message.get(gathered, lane.from * length, length)
    inner.release(lane, sequence)
  }
}

object ExchangingTransport {

  /** Direct memory at a rank: what arrives, and what it sends. */
  def memory(size: Int, lengths: Seq[Int], inboxBytes: Long => Long): (Long, Long) =
    if (lengths.isEmpty || size == 1) (0, 0)
    else {
      val longest = lengths.max * java.lang.Float.BYTES.toLong
      ((size - 1) * inboxBytes(longest), lengths.size * longest)
    }

  private def pairs(size: Int): IndexedSeq[(Int, Int)] =
    for (from <- 0 until size; to <- 0 until size if to != from) yield (from, to)
}
