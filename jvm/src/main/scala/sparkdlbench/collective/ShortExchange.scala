package sparkdlbench.collective

import sparkdlbench.common.RunFailedException
import sparkdlbench.transport.{Lane, Transport}

import java.nio.{ByteBuffer, ByteOrder}

/**
 * Vectors so short that latency is all that counts: in one step every rank sends its own to all others, B (N-1) bytes per rank. Making it
 * opens a lane from every rank to every other: a collective call.
 *
 * No credits: rank r sends message s + 2 after it has had message s + 1 of all others, which they sent after they had finished with its
 * message s. So two slots per lane are enough.
 *
 * @param capacity
 *   bytes of the longest vector
 */
private[collective] final class ShortExchange(transport: Transport, capacity: Int) {
  private val rank = transport.rank
  private val size = transport.size
  private val outgoing = ByteBuffer.allocateDirect(capacity).order(ByteOrder.nativeOrder())
  private val lanes: Seq[Lane] = {
    val first = transport.lanesOpened
    val pairs = for (from <- 0 until size; to <- 0 until size if from != to) yield (from, to)
    pairs.zipWithIndex.map { case ((from, to), index) => Lane(first + index, from, to, capacity, "short vector") }
  }
  transport.open(lanes, _ => None)
  private val sends = lanes.filter(_.from == rank).toArray
  private val receives = lanes.filter(_.to == rank).sortBy(_.from).toArray
  private var sequence = 0L

  /**
   * Sends `data` to all others.
   *
   * @param use
   *   called with each rank and its vector, this one's too, in the order of ranks; reads the vector before it returns
   */
  def exchange(data: ByteBuffer)(use: (Int, ByteBuffer) => Unit): Unit =
    if (!data.hasRemaining || size == 1) use(rank, data)
    else {
      outgoing.clear().put(Links.view(data)).flip()
      var index = 0
      while (index < sends.length) { transport.send(sends(index), sequence, outgoing); index += 1 }
      index = 0
      while (index < receives.length) {
        if (index == rank) use(rank, Links.view(outgoing))
        take(receives(index), data.remaining, use)
        index += 1
      }
      if (rank == size - 1) use(rank, Links.view(outgoing))
      // From here on nobody may serve the connections for long.
      transport.flush()
      sequence += 1
    }

  private def take(lane: Lane, expected: Int, use: (Int, ByteBuffer) => Unit): Unit = {
    val message = Links.view(transport.receive(lane, sequence))
    if (message.remaining != expected)
      throw new RunFailedException(
        s"Rank $rank got ${message.remaining} bytes from rank ${lane.from} where its operation needs $expected: the two ranks give different " +
          "lengths. Call the same operations in the same order, with the same lengths, on all ranks."
      )
    use(lane.from, message)
    transport.release(lane, sequence)
  }
}
