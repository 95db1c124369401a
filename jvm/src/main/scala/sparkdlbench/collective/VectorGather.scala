package sparkdlbench.collective

import sparkdlbench.engine.RankGather
import sparkdlbench.transport.{Lane, Transport}
import sparkdlbench.vector.FlatBuffer

import java.nio.ByteOrder

/**
 * Small vectors that the ranks show each other in the middle of a pass. One round: every rank sends its vector to the
 * others, (size − 1) · 4 · length bytes, counted as payload. The answer holds the vectors in the order of the ranks, so what
 * is made of it is the same bits everywhere. Making it opens a lane from every rank to every other, beside those of the
 * step: a collective call.
 *
 * Rank r sends message s + 2 after it has had message s + 1 of all others, which they sent after they had finished with its
 * message s: two slots a lane are enough.
 *
 * @param lengths
 *   of the vectors of one step: their number says how many are sent before their memory is used again
 */
final class VectorGather(transport: Transport, lengths: Seq[Int]) extends RankGather {
  val size: Int = transport.size
  private val rank = transport.rank
  private val longest = lengths.max
  private val outgoing = IndexedSeq.fill(lengths.size)(new FlatBuffer(longest))
  private val gathered = new Array[Float](Math.multiplyExact(size, longest))
  private val lanes = {
    val first = transport.lanesOpened
    VectorGather.pairs(size).zipWithIndex.map { case ((from, to), index) =>
      Lane(first + index, from, to, longest * java.lang.Float.BYTES, "layer statistics")
    }
  }
  private var sequence = 0L
  transport.open(lanes, _ => None)

  def gather(values: Array[Float]): Array[Float] = {
    require(values.length <= longest, s"${values.length} values, and the longest vector was to have $longest")
    val slot = (sequence % outgoing.length).toInt
    if (slot == 0) transport.flush()
    outgoing(slot).floats.put(0, values)
    val message = outgoing(slot).byteSlice(0, values.length)
    lanes.foreach(lane => if (lane.from == rank) transport.send(lane, sequence, message))
    System.arraycopy(values, 0, gathered, rank * values.length, values.length)
    lanes.foreach(lane => if (lane.to == rank) take(lane, values.length))
    sequence += 1
    gathered
  }

  private def take(lane: Lane, length: Int): Unit = {
    val message = transport.receive(lane, sequence).duplicate().order(ByteOrder.nativeOrder()).asFloatBuffer()
    if (message.remaining() != length)
      throw new IllegalStateException(
        s"rank ${lane.from} sent ${message.remaining()} values where rank $rank has $length"
      )
    message.get(gathered, lane.from * length, length)
    transport.release(lane, sequence)
  }
}

object VectorGather {

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
