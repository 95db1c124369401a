package sparkdlbench.transport
package push

import io.netty.buffer.{ByteBuf, ByteBufAllocator}

import java.net.{URLDecoder, URLEncoder}
import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8
import java.security.{MessageDigest, SecureRandom}
import java.util.concurrent.atomic.LongAdder
import scala.util.Try
import sparkdlbench.common.RunFailedException

/**
 * Names the stream of frames from one rank to another in one attempt of one run.
 *
 * @param inbox
 *   number of the receiver's mailbox: 63 bits of a digest of the attempt's id and of a secret. Only the ranks of the group
 *   learn it, so others that may connect to the executor (another attempt's ranks, any client of the session) have no
 *   stream by which to disturb this one
 * @param from
 *   below 32,768
 * @param to
 *   below 65,536
 */
final case class StreamId(inbox: Long, from: Int, to: Int) {
  require(
    inbox >= 0 && from >= 0 && from < StreamId.MaxFrom && to >= 0 && to < StreamId.MaxTo,
    s"$inbox, $from, $to"
  )

  /** Both ranks in one non-negative Int, as Spark's shuffle block ids have room for. */
  def ranks: Int = (from << 16) | to
  override def toString: String = s"$inbox-$from-$to"
}

object StreamId {
  val MaxFrom: Int = 1 << 15
  val MaxTo: Int = 1 << 16

  def apply(inbox: Long, ranks: Int): StreamId = StreamId(inbox, ranks >>> 16, ranks & 0xffff)

  def parse(text: String): Option[StreamId] = text.split('-') match {
    case Array(inbox, from, to) => Try(StreamId(inbox.toLong, from.toInt, to.toInt)).toOption
    case _ => None
  }

  /** A number for a mailbox of this attempt, another one each time. */
  def inboxNumber(attemptId: String): Long = {
    val digest = MessageDigest.getInstance("SHA-256")
    digest.update(attemptId.getBytes(UTF_8))
    val secret = new Array[Byte](32)
    random.nextBytes(secret)
    ByteBuffer.wrap(digest.digest(secret)).getLong & Long.MaxValue
  }

  private lazy val random = new SecureRandom
}

/** What ranks say to each other beside their messages. Prints and parses. */
sealed trait Control

object Control {

  /**
   * The sender's inboxes for `open` number `generation` exist.
   *
   * @param offer
   *   a mapped file that may replace the sockets
   * @param vectors
   *   files of vectors to which messages go
   */
  final case class Ready(generation: Int, offer: Option[HostLocalOffer], vectors: Seq[VectorOffer] = Nil)
      extends Control

  /**
   * The other end has mapped the offered file, or could not.
   *
   * @param vectors
   *   files of vectors in which messages lie
   */
  final case class Attached(generation: Int, attached: Boolean, vectors: Seq[VectorOffer] = Nil) extends Control

  /** Both ends see the same memory, or do not: from now on messages go through it, or through sockets. */
  final case class Verdict(generation: Int, shared: Boolean) extends Control

  /** The rank leaves the group. */
  case object Bye extends Control

  def print(control: Control): String = control match {
    case Ready(generation, None, _) => s"ready $generation"
    case Ready(generation, Some(offer), vectors) =>
      words(s"ready $generation ${print(offer.path, offer.bytes, offer.nonce)}", vectors)
    case Attached(generation, attached, vectors) => words(s"attached $generation $attached", vectors)
    case Verdict(generation, shared) => s"verdict $generation $shared"
    case Bye => "bye"
  }

  def parse(text: String): Option[Control] = Try[Control](text.split(' ').toList match {
    case List("ready", generation) => Ready(generation.toInt, None)
    case "ready" :: generation :: offer :: vectors =>
      Ready(generation.toInt, Some(file(offer)(HostLocalOffer(_, _, _))), vectors.map(file(_)(VectorOffer(_, _, _))))
    case "attached" :: generation :: attached :: vectors =>
      Attached(generation.toInt, attached.toBoolean, vectors.map(file(_)(VectorOffer(_, _, _))))
    case List("verdict", generation, shared) => Verdict(generation.toInt, shared.toBoolean)
    case List("bye") => Bye
    case _ => throw new IllegalArgumentException(text)
  }).toOption

  private def words(head: String, vectors: Seq[VectorOffer]): String =
    (head +: vectors.map(each => print(each.path, each.bytes, each.identity))).mkString(" ")

  private def print(path: String, bytes: Long, mark: String): String = s"$bytes:$mark:${URLEncoder.encode(path, UTF_8)}"

  private def file[T](text: String)(make: (String, Long, String) => T): T = text.split(':') match {
    case Array(bytes, mark, path) => make(URLDecoder.decode(path, UTF_8), bytes.toLong, mark)
    case _ => throw new IllegalArgumentException(text)
  }
}

/** A frame is 16 bytes of header (lane: Int, length: Int, sequence: Long, network order) and `length` bytes. */
object Frame {
  val HeaderBytes = 16
  val ControlLane: Int = -1
  val PaddingLane: Int = -2

  def putHeader(target: ByteBuffer, lane: Int, length: Int, sequence: Long): Unit = {
    target.putInt(lane)
    target.putInt(length)
    target.putLong(sequence)
  }

  /** The same in a direct buffer of Netty's, for the network to write and to release. */
  def header(buffers: ByteBufAllocator, lane: Int, length: Int, sequence: Long): ByteBuf =
    buffers.directBuffer(HeaderBytes).writeInt(lane).writeInt(length).writeLong(sequence)
}

/** The uploads of a stream, one after the other: how many bytes each has, which both ends know without being told. */
object UploadWindow {
  val FirstBytes: Long = 256L << 10
  val MaxBytes: Long = 16L << 20
  def after(bytes: Long): Long = math.min(bytes * 2, MaxBytes)
}

/**
 * Takes the bytes of one stream apart, in whatever pieces they come, and writes messages straight to their slots. Called
 * by one thread at a time, the network's or the rank's; never blocks.
 */
final class FrameReader(mailbox: Mailbox, from: Int) {
  private val header = ByteBuffer.allocateDirect(Frame.HeaderBytes)
  private var lane: LaneSlots = _
  private var laneId = 0
  private var length = 0
  private var sequence = 0L
  private var target: ByteBuffer = _
  private var left = 0
  private var inFrame = false
  private var nextWindow = UploadWindow.FirstBytes
  private var windowLeft = 0L
  private var lent: ByteBuffer = _
  private var lastWasLarge = false

  def accept(data: ByteBuffer): Unit =
    try {
      windowLeft -= data.remaining
      if (lent != null) arrivedInPlace(data)
      while (data.hasRemaining) if (inFrame) body(data) else head(data)
    } catch { case error: RuntimeException => mailbox.fail(error); throw error }

  /** The stream is one piece without end, not a row of uploads. */
  def beginEndless(): Unit = windowLeft = Long.MaxValue

  /** The next upload of the stream begins. */
  def beginUpload(): Unit = {
    windowLeft = nextWindow
    nextWindow = UploadWindow.after(nextWindow)
  }

  /** All bytes of the upload were accepted. */
  def endUpload(): Unit =
    if (windowLeft != 0)
      try malformed(s"an upload that ends $windowLeft bytes from its end")
      catch { case error: RuntimeException => mailbox.fail(error); throw error }

  /**
   * Where the network may put the next bytes itself, so that nobody has to copy them, as far as they belong to this upload: the rest of
   * the message under way; or, after a large message, the next header alone, for another large message may follow it, whose
   * beginning would come along with the header and have to be copied. What it puts there has to be what the next `accept` gets.
   * Null where that does not pay.
   */
  def lend(): ByteBuffer = {
    lent = if (inFrame) {
      if (canLend) within(target, left, FrameReader.LeastLentBytes) else null
    } else if (lastWasLarge) within(header, header.remaining, 1)
    else null
    lent
  }

  /**
   * The same for bytes of which it is known how many there are, but not yet whether they are what was sent: where they may be put
   * before the next `accept` gets them, or nobody does. Null where not all of them belong to one large message.
   */
  def lend(bytes: Int): ByteBuffer = {
    val mayLend = inFrame && canLend && bytes >= FrameReader.LeastLentBytes && bytes <= left
    lent = if (mayLend) within(target, bytes, bytes) else null
    lent
  }

  /** Of the frame under way. */
  private def canLend: Boolean = laneId >= 0 && target.isDirect

  private def within(place: ByteBuffer, wanted: Int, least: Int): ByteBuffer = {
    val most = math.min(wanted.toLong, windowLeft).toInt
    if (most >= least) place.slice(place.position(), most) else null
  }

  private def arrivedInPlace(data: ByteBuffer): Unit = {
    lent = null
    val count = data.remaining
    data.position(data.limit())
    if (inFrame) {
      target.position(target.position() + count)
      left -= count
      FrameReader.inPlaceBytes.add(count.toLong)
      if (left == 0) end()
    } else {
      header.position(header.position() + count)
      beginIfWhole()
    }
  }

  private def head(data: ByteBuffer): Unit = {
    moveInto(header, data, header.remaining)
    beginIfWhole()
  }

  private def beginIfWhole(): Unit =
    if (!header.hasRemaining) {
      header.flip()
      laneId = header.getInt()
      length = header.getInt()
      sequence = header.getLong()
      header.clear()
      begin()
    }

  private def begin(): Unit = {
    if (length < 0) malformed(s"length $length")
    laneId match {
      case Frame.PaddingLane => target = null
      case Frame.ControlLane if length <= FrameReader.MaxControlBytes =>
        target = ByteBuffer.allocate(length)
      case id if id >= 0 =>
        lane = mailbox.slots(id).getOrElse(malformed(s"lane $id, which is not open"))
        if (lane.lane.from != from) malformed(s"lane $id, which starts at rank ${lane.lane.from}")
        target = lane.claim(sequence, length)
      case other => malformed(s"lane $other, length $length")
    }
    left = length
    inFrame = true
    if (left == 0) end()
  }

  private def body(data: ByteBuffer): Unit = {
    val count = math.min(left, data.remaining)
    if (target == null) data.position(data.position() + count) else moveInto(target, data, count)
    left -= count
    if (left == 0) end()
  }

  private def moveInto(target: ByteBuffer, data: ByteBuffer, most: Int): Unit = {
    val limit = data.limit()
    data.limit(data.position() + math.min(most, data.remaining))
    target.put(data)
    data.limit(limit)
  }

  private def end(): Unit = {
    inFrame = false
    lastWasLarge = laneId >= 0 && length >= FrameReader.LeastLentBytes
    if (laneId >= 0) { lane.publish(sequence, length); mailbox.wakeUp() }
    else if (laneId == Frame.ControlLane) {
      val text = new String(target.array, UTF_8)
      mailbox.tell(from, Control.parse(text).getOrElse(malformed(s"control text '$text'")))
    }
  }

  private def malformed(what: String): Nothing = throw new RunFailedException(
    s"Rank $from sent rank ${mailbox.rank} a frame that makes no sense: $what. Check that all executors run the same version of this package."
  )
}

object FrameReader {
  val MaxControlBytes: Int = 1 << 16

  /** Below that a copy costs less than a buffer for the occasion. */
  val LeastLentBytes: Int = 16 << 10

  /** Payload bytes that the network itself has put where they belong, in this process so far. */
  val inPlaceBytes = new LongAdder
}
