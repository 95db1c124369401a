package sparkdlbench.collective

import sparkdlbench.common.RunFailedException
import sparkdlbench.transport.{Lane, Transport}

import java.nio.{ByteBuffer, ByteOrder}

/** Bytes on their way to a rank: what remains of `bytes`, which is direct memory. */
private[collective] final class Outgoing(val to: Int, bytes: ByteBuffer) {
  private[collective] val left = Links.view(bytes)
}

/**
 * Bytes that a rank is to send: `length` of them.
 *
 * @param deliver
 *   called with each piece and its offset, in order; reads the piece before it returns
 */
private[collective] final class Incoming(val from: Int, val length: Int, val deliver: (Int, ByteBuffer) => Unit) {
  private[collective] var done = 0
}

/**
 * A stream of bytes between each two ranks of a transport, whose lanes alone hold two messages at a time: a sender keeps to that with the
 * empty messages (credits) that the receiver answers each piece with. Opening it is a collective call. After a failure it cannot be
 * used any more.
 *
 * Direct memory: two pieces for each other rank.
 *
 * @param pieceBytes
 *   of the longest message; a multiple of 8, so that no value is cut
 */
private[collective] final class Links(transport: Transport, pieceBytes: Int) {
  require(pieceBytes > 0 && pieceBytes % 8 == 0, s"pieces of $pieceBytes bytes")
  private val rank = transport.rank
  private val size = transport.size

  /** This rank's ends of the streams to and from another. */
  private final class Peer(val data: Lane, val dataCredits: Lane, val inbox: Lane, val inboxCredits: Lane) {
    var sent, credits, received = 0L
  }

  private val peers: IndexedSeq[Option[Peer]] = {
    val first = transport.lanesOpened
    val pairs = for (from <- 0 until size; to <- 0 until size if from != to) yield (from, to)
    val data = pairs.zipWithIndex.map { case ((from, to), index) =>
      (from, to) -> Lane(first + index, from, to, pieceBytes)
    }
    val credits = pairs.zipWithIndex.map { case ((from, to), index) =>
      (from, to) -> Lane(first + pairs.size + index, to, from, 0, "credit")
    }
    transport.open((data ++ credits).map(_._2), _ => None)
    val (dataOf, creditsOf) = (data.toMap, credits.toMap)
    (0 until size).map { peer =>
      if (peer == rank) None
      else
        Some(
          new Peer(dataOf((rank, peer)), creditsOf((rank, peer)), dataOf((peer, rank)), creditsOf((peer, rank)))
        )
    }
  }
  private val nothing = ByteBuffer.allocateDirect(0)

  /**
   * Sends and receives all of it, at most one stream in each direction for each other rank, and returns when the memory of what is sent
   * may be changed.
   *
   * @param inOrder
   *   whether nothing of an incoming stream is delivered before those in front of it are complete
   */
  def exchange(outgoing: Seq[Outgoing], incoming: Seq[Incoming], inOrder: Boolean = false): Unit = {
    var sending = outgoing.filter(_.left.hasRemaining)
    var receiving = incoming.filter(_.length > 0)
    while (sending.nonEmpty || receiving.nonEmpty) {
      val listening = if (inOrder) receiving.take(1) else receiving
      // Both sides of each round, whatever the first moved.
      val moved = sending.map(push).contains(true) | listening.map(pull).contains(true)
      sending = sending.filter(_.left.hasRemaining)
      receiving = receiving.filter(stream => stream.done < stream.length)
      if (!moved) transport.awaitAny((sending.map(creditOf) ++ listening.map(pieceOf)).toIndexedSeq)
    }
    transport.flush()
  }

  /** Sends as many pieces as the receiver has room for; whether there was one. */
  private def push(stream: Outgoing): Boolean = {
    val peer = peerOf(stream.to)
    val before = peer.sent
    while (stream.left.hasRemaining && hasRoom(peer)) {
      val piece = Links.view(stream.left)
      piece.limit(piece.position() + math.min(pieceBytes, piece.remaining))
      transport.send(peer.data, peer.sent, piece)
      peer.sent += 1
      stream.left.position(piece.limit())
    }
    peer.sent > before
  }

  /** Whether the piece before the last has been read. */
  private def hasRoom(peer: Peer): Boolean = {
    while (peer.credits < peer.sent - 1 && transport.hasArrived(peer.dataCredits, peer.credits)) {
      transport.receive(peer.dataCredits, peer.credits)
      transport.release(peer.dataCredits, peer.credits)
      peer.credits += 1
    }
    peer.credits >= peer.sent - 1
  }

  /** Delivers the pieces that have arrived; whether there was one. */
  private def pull(stream: Incoming): Boolean = {
    val peer = peerOf(stream.from)
    val before = peer.received
    while (stream.done < stream.length && transport.hasArrived(peer.inbox, peer.received)) {
      val piece = Links.view(transport.receive(peer.inbox, peer.received))
      val length = piece.remaining
      val expected = math.min(pieceBytes, stream.length - stream.done)
      if (length != expected)
        throw new RunFailedException(
          s"Rank $rank got $length bytes from rank ${stream.from} where its operation needs $expected: the two ranks are in " +
            "different operations, or give different lengths. Call the same operations in the same order, with the same lengths, on all ranks."
        )
      stream.deliver(stream.done, piece)
      stream.done += length
      transport.release(peer.inbox, peer.received)
      Links.credit(transport, peer.inboxCredits, peer.received, nothing)
      peer.received += 1
    }
    peer.received > before
  }

  private def creditOf(stream: Outgoing): (Lane, Long) = {
    val peer = peerOf(stream.to)
    (peer.dataCredits, peer.credits)
  }

  private def pieceOf(stream: Incoming): (Lane, Long) = {
    val peer = peerOf(stream.from)
    (peer.inbox, peer.received)
  }

  private def peerOf(other: Int): Peer =
    peers(other).getOrElse(throw new IllegalStateException(s"rank $rank has no stream to itself"))
}

private[collective] object Links {

  /**
   * Tells the sender of a piece that it has been read. That rank may have had its own last piece by then, and have left: then nobody waits
   * for the credit, and nothing is lost with it. A link that is broken says so in the next call, and in the wait for whatever is still due.
   */
  def credit(transport: Transport, lane: Lane, sequence: Long, nothing: ByteBuffer): Unit =
    try transport.send(lane, sequence, nothing)
    catch { case _: RunFailedException => () }

  /** The same remaining bytes with a position of its own, in native order. */
  def view(bytes: ByteBuffer): ByteBuffer = bytes.duplicate().order(ByteOrder.nativeOrder())

  /** `length` bytes of it, from `offset` after its position on. */
  def part(bytes: ByteBuffer, offset: Int, length: Int): ByteBuffer = {
    val result = view(bytes)
    result.limit(bytes.position() + offset + length)
    result.position(bytes.position() + offset)
    result
  }
}
