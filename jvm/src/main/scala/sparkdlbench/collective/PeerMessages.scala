package sparkdlbench.collective

import sparkdlbench.common.RunFailedException
import sparkdlbench.transport.{Lane, Transport}

import java.nio.{ByteBuffer, ByteOrder}
import scala.collection.mutable

/**
 * A message on its way, at one of its ends.
 *
 * @param peer
 *   whom it goes to or comes from; None: from anybody
 * @param data
 *   direct memory: what is sent, or where it goes; it is as long as the message
 */
private[sparkdlbench] final class PeerMessage(val peer: Option[Int], val tag: Int, data: ByteBuffer) {
  private[collective] val left: ByteBuffer = Links.view(data)
  private[collective] val bytes: Int = left.remaining

  /** Of the rank that it came from or went to, once that is known. */
  private[collective] var other: Int = peer.getOrElse(-1)
  private[collective] var isDone = false

  /** Whether all of it has gone or come. */
  def done: Boolean = isDone

  /** The other end. */
  def source: Int = other
}

/**
 * Messages between any two ranks of a transport, in any order of sends and receives, by tag. A message begins to travel when both ends want
 * it, so nothing is kept but what it is: the sender announces it, the receiver asks for it once it has a receive of that tag. Of one
 * sender and tag, messages are received in the order of their sends.
 *
 * Steps: 3 one-way messages until the first bytes are there. Bytes: the message's, and 24 with each piece. Used by one thread, which calls
 * `progress` while messages are under way. Direct memory: two pieces for each other rank. Opening it is a collective call.
 *
 * @param pieceBytes
 *   of the longest piece with its head
 */
private[sparkdlbench] final class PeerMessages(transport: Transport, pieceBytes: Int = PeerMessages.PieceBytes) {
  import PeerMessages._
  private val rank = transport.rank
  private val size = transport.size

  private final class Peer(val number: Int, lanes: Map[(Int, Int, String), Lane]) {
    val data: Lane = lanes((rank, number, Data))
    val dataCredits: Lane = lanes((number, rank, Credit))
    val inbox: Lane = lanes((number, rank, Data))
    val inboxCredits: Lane = lanes((rank, number, Credit))
    val slots: Array[ByteBuffer] =
      Array.fill(2)(ByteBuffer.allocateDirect(pieceBytes).order(ByteOrder.nativeOrder()))
    var sent, credits, received = 0L
    var next = 0L
    val words = mutable.Queue.empty[(Int, Long, Int, Int)]
    val announced = mutable.LongMap.empty[PeerMessage]
    val sending = mutable.Queue.empty[(Long, PeerMessage)]
    val receiving = mutable.LongMap.empty[PeerMessage]
  }

  private val peers: IndexedSeq[Peer] = {
    val first = transport.lanesOpened
    val pairs = for (from <- 0 until size; to <- 0 until size if from != to) yield (from, to)
    val lanes = pairs.zipWithIndex.flatMap { case ((from, to), index) =>
      Seq(
        (from, to, Data) -> Lane(first + index, from, to, pieceBytes, "message"),
        // A credit goes back to the sender of what it is for.
        (to, from, Credit) -> Lane(first + pairs.size + index, to, from, 0, "credit")
      )
    }
    transport.open(lanes.map(_._2).sortBy(_.id), _ => None)
    val byEnds = lanes.toMap
    (0 until size).map(other => if (other == rank) null else new Peer(other, byEnds))
  }
  private val offers = mutable.ArrayBuffer.empty[Offer]
  private val posted = mutable.ArrayBuffer.empty[PeerMessage]
  private val nothing = ByteBuffer.allocateDirect(0)

  /** Its memory stays as it is until it is done. */
  def send(message: PeerMessage): Unit = {
    val peer = peers(message.other)
    peer.announced(peer.next) = message
    peer.words.enqueue((Announce, peer.next, message.tag, message.bytes)): Unit
    peer.next += 1
  }

  def receive(message: PeerMessage): Unit =
    offers.indexWhere(fits(message, _)) match {
      case -1 => posted += message: Unit
      case place => accept(message, offers.remove(place))
    }

  /** Whom something is under way with, or may come from. */
  def isIdle: Boolean = posted.isEmpty && others.forall { peer =>
    peer.words.isEmpty && peer.announced.isEmpty && peer.sending.isEmpty && peer.receiving.isEmpty
  }

  /** Sends and receives what can be without waiting; whether there was anything. Fails where a rank that is needed has left. */
  def progress(): Boolean = {
    var moved = false
    others.foreach { peer =>
      moved |= pull(peer)
      moved |= push(peer)
    }
    if (moved) transport.flush() else others.foreach(failIfGone)
    moved
  }

  private def others: IndexedSeq[Peer] = peers.filter(_ != null)

  private def fits(message: PeerMessage, offer: Offer): Boolean =
    message.tag == offer.tag && message.peer.forall(_ == offer.from)

  private def accept(message: PeerMessage, offer: Offer): Unit = {
    if (message.bytes != offer.bytes)
      throw new RunFailedException(
        s"Rank $rank receives ${message.bytes} bytes from rank ${offer.from} (tag ${offer.tag}), which sends ${offer.bytes}. Give both the same length."
      )
    message.other = offer.from
    peers(offer.from).words.enqueue((Ask, offer.id, 0, 0)): Unit
    if (message.bytes == 0) message.isDone = true else peers(offer.from).receiving(offer.id) = message
  }

  private def push(peer: Peer): Boolean = {
    val before = peer.sent
    while ((peer.words.nonEmpty || peer.sending.nonEmpty) && hasRoom(peer)) {
      val piece = peer.slots((peer.sent % 2).toInt) // the receiver has read what was in it
      piece.clear()
      if (peer.words.nonEmpty) {
        val (kind, id, tag, bytes) = peer.words.dequeue()
        head(piece, kind, id, tag, bytes)
      } else {
        val (id, message) = peer.sending.head
        val length = math.min(pieceBytes - HeadBytes, message.left.remaining)
        head(piece, Part, id, message.tag, length)
        val part = Links.part(message.left, 0, length)
        message.left.position(message.left.position() + length)
        piece.put(part)
        if (!message.left.hasRemaining) {
          peer.sending.dequeue(): Unit
          message.isDone = true // copied
        }
      }
      piece.flip()
      transport.send(peer.data, peer.sent, piece)
      peer.sent += 1
    }
    peer.sent > before
  }

  private def head(piece: ByteBuffer, kind: Int, id: Long, tag: Int, bytes: Int): Unit =
    piece.putInt(kind).putInt(tag).putLong(id).putInt(bytes).putInt(0): Unit

  private def hasRoom(peer: Peer): Boolean = {
    while (peer.credits < peer.sent - 1 && transport.hasArrived(peer.dataCredits, peer.credits)) {
      transport.receive(peer.dataCredits, peer.credits)
      transport.release(peer.dataCredits, peer.credits)
      peer.credits += 1
    }
    peer.credits >= peer.sent - 1
  }

  private def pull(peer: Peer): Boolean = {
    val before = peer.received
    while (transport.hasArrived(peer.inbox, peer.received)) {
      val piece = Links.view(transport.receive(peer.inbox, peer.received))
      heard(peer, piece)
      transport.release(peer.inbox, peer.received)
      Links.credit(transport, peer.inboxCredits, peer.received, nothing)
      peer.received += 1
    }
    peer.received > before
  }

  private def heard(peer: Peer, piece: ByteBuffer): Unit = {
    val (kind, tag, id, bytes) = (piece.getInt(), piece.getInt(), piece.getLong(), piece.getInt())
    piece.getInt(): Unit
    kind match {
      case Announce =>
        val offer = Offer(peer.number, id, tag, bytes)
        posted.indexWhere(fits(_, offer)) match {
          case -1 => offers += offer: Unit
          case place => accept(posted.remove(place), offer)
        }
      case Ask =>
        val message = peer.announced.remove(id).get
        if (message.bytes == 0) message.isDone = true else peer.sending.enqueue((id, message)): Unit
      case Part =>
        val message = peer.receiving(id)
        message.left.put(piece)
        if (!message.left.hasRemaining) {
          peer.receiving.remove(id): Unit
          message.isDone = true
        }
      case other => throw new IllegalStateException(s"rank ${peer.number} sent a piece of kind $other")
    }
  }

  private def failIfGone(peer: Peer): Unit = if (
    transport.hasLeft(peer.number) && !transport.hasArrived(peer.inbox, peer.received)
  ) {
    val isNeeded = peer.announced.nonEmpty || peer.sending.nonEmpty || peer.receiving.nonEmpty ||
      posted.exists(_.peer.contains(peer.number)) ||
      posted.exists(_.peer.isEmpty) && others.forall(each => transport.hasLeft(each.number))
    if (isNeeded)
      throw new RunFailedException(
        s"Rank $rank waited for rank ${peer.number}, which has left the group: its task has ended. The reason is in that task's error or in the log " +
          "of its executor."
      )
  }
}

private[sparkdlbench] object PeerMessages {

  /** Of the longest piece. */
  val PieceBytes: Int = 64 * 1024
  private val HeadBytes = 24
  private val Data = "data"
  private val Credit = "credit"

  /** What a rank has announced and nobody has asked for yet. */
  private final case class Offer(from: Int, id: Long, tag: Int, bytes: Int)

  // What a piece is.
  private val Announce = 1
  private val Ask = 2
  private val Part = 3
}
