package sparkdlbench.transport.push

import io.netty.buffer.{ByteBuf, Unpooled}
import io.netty.channel._

import java.io.IOException
import java.nio.ByteBuffer
import java.security.SecureRandom
import java.util.ArrayList

/**
 * Encrypts what is written to a connection as Spark's own handler does (`GcmFormat`); what is flushed together shares messages.
 *
 * @param key
 *   of the connection
 */
final class GcmEncryption(key: Array[Byte]) extends GatheredEncryption {
  import GcmFormat._
  private val cipher = new AesGcm(encrypts = true)
  private val piece = ByteBuffer.allocateDirect(GcmEncryption.PieceBytes).limit(0)
  private val pieceAt = OpenSsl.addressOf(piece)

  protected def encrypted(parts: ArrayList[ByteBuf]): EncryptedParts = new EncryptedParts(parts, piece) {
    override val count: Long = {
      var (left, sum) = (plainBytes, 0L)
      while (left > 0) { val next = nextMessage(left, key); sum += messageBytes(next, key); left -= next }
      sum
    }
    private var left = plainBytes

    // Of the message that is being written.
    private var inMessage = 0L
    private var segment = 0

    protected def encrypt(source: Long, target: Long, bytes: Int): Unit = cipher(source, target, bytes)

    protected def fill(piece: ByteBuffer): Unit =
      while (left > 0 && piece.remaining >= LengthBytes + headerBytes(key) + SegmentBytes) {
        if (inMessage == 0) begin(piece)
        val bytes = math.min(inMessage, PlainBytes.toLong).toInt
        cipher.segment(segment, last = bytes == inMessage)
        take(bytes)
        cipher.seal(pieceAt + piece.position())
        piece.position(piece.position() + TagBytes)
        segment += 1
        inMessage -= bytes
        left -= bytes
      }

    private def begin(piece: ByteBuffer): Unit = {
      inMessage = nextMessage(left, key)
      segment = 0
      val length = ByteBuffer.allocate(LengthBytes).putLong(messageBytes(inMessage, key)).array
      val salt = GcmEncryption.random(key.length)
      val prefix = GcmEncryption.random(PrefixBytes)
      cipher.begin(GcmFormat.key(key, salt, length), prefix)
      piece.put(length).put(headerBytes(key).toByte).put(salt).put(prefix): Unit
    }
  }

  protected def end(): Unit = cipher.close()
}

private object GcmEncryption {
  val PieceBytes: Int = 4 * GcmFormat.SegmentBytes + 128
  private val source = new SecureRandom

  def random(count: Int): Array[Byte] = { val bytes = new Array[Byte](count); source.nextBytes(bytes); bytes }
}

/**
 * Decrypts what a connection reads, from the beginning of a message on (`GcmFormat`). Nothing is passed on before its tag has been checked; after
 * one that is wrong, nothing any more.
 *
 * Segments do not lie one behind the other as their texts do. So they are read to an inbox (`lend`) that stays in a core's cache, and each
 * is decrypted from there to where its text belongs.
 *
 * @param key
 *   of the connection
 * @param place
 *   where so many bytes of text may be put that are the next to be passed on, if they are (`FrameReader.lend`); null where there is none
 */
final class GcmDecryption(key: Array[Byte], place: Int => ByteBuffer) extends ChannelInboundHandlerAdapter {
  import GcmFormat._
  private val cipher = new AesGcm(encrypts = false)
  private val beginBytes = LengthBytes + headerBytes(key)
  private val inbox = ByteBuffer.allocateDirect(GcmDecryption.SegmentsAtOnce * SegmentBytes + 2 * beginBytes)
  private val inboxAt = OpenSsl.addressOf(inbox)

  /** Of the inbox, what has been read and not been decrypted. */
  private var start, end = 0

  // Of the message under way.
  private var left = 0L
  private var segment = 0
  private var isOver = false

  /**
   * Where the network may put the next bytes itself; what it puts there has to be what the next `channelRead` gets. Null where
   * nothing is decrypted any more.
   */
  def lend(): ByteBuffer = if (isOver) null
  else {
    makeRoom()
    inbox.slice(end, math.min(inbox.capacity - end, wanted))
  }

  /** No more than whole segments, so that none has to be moved, and the beginning of the next message. */
  private def wanted: Int = {
    val most = GcmDecryption.SegmentsAtOnce * SegmentBytes
    val due = if (left == 0) beginBytes + most else if (left <= most) left.toInt + beginBytes else most
    due - (end - start)
  }

  private def makeRoom(): Unit =
    if (start == end) { start = 0; end = 0 }
    else if (inbox.capacity - start < beginBytes + SegmentBytes) {
      inbox.slice(0, end - start).put(inbox.slice(start, end - start))
      end -= start
      start = 0
    }

  override def channelRead(context: ChannelHandlerContext, message: AnyRef): Unit = message match {
    case bytes: ByteBuf =>
      try {
        if (isOver) throw new IOException("the connection was given up before")
        if (OpenSsl.addressOf(bytes) == inboxAt + end) {
          end += bytes.readableBytes
          decrypt(context)
        } else
          while (bytes.isReadable && !isOver) {
            makeRoom()
            val now = math.min(bytes.readableBytes, inbox.capacity - end)
            bytes.readBytes(inbox.slice(end, now))
            end += now
            decrypt(context)
          }
      } catch { case error: Throwable => isOver = true; throw error }
      finally bytes.release(): Unit
    case other => context.fireChannelRead(other): Unit
  }

  /** What has been read so far, as far as it is whole. */
  private def decrypt(context: ChannelHandlerContext): Unit = {
    var isWhole = true
    while (isWhole && !isOver) {
      val next = if (left == 0) beginBytes else math.min(left, SegmentBytes.toLong).toInt
      isWhole = end - start >= next
      if (isWhole) {
        val at = start
        start += next
        if (left == 0) begin(at) else context.fireChannelRead(opened(context, at, next)): Unit
      }
    }
  }

  private def begin(at: Int): Unit = {
    val head = inbox.slice(at, beginBytes)
    val length = new Array[Byte](LengthBytes)
    head.get(length)
    val stated = ByteBuffer.wrap(length).getLong()
    val headerLength = head.get()
    if (stated <= beginBytes + TagBytes || headerLength != headerBytes(key))
      throw new IOException(
        s"a message that is encrypted by AES-GCM states $stated bytes and a header of $headerLength"
      )
    left = stated - beginBytes
    segment = 0
    val salt = new Array[Byte](key.length)
    val prefix = new Array[Byte](PrefixBytes)
    head.get(salt).get(prefix)
    cipher.begin(GcmFormat.key(key, salt, length), prefix)
  }

  /** The text of the segment that lies there. */
  private def opened(context: ChannelHandlerContext, at: Int, whole: Int): ByteBuf = {
    val bytes = whole - TagBytes
    if (bytes <= 0) throw new IOException(s"a segment that is encrypted by AES-GCM has $whole bytes")
    val lent = place(bytes)
    val text = if (lent == null) context.alloc().directBuffer(bytes) else Unpooled.wrappedBuffer(lent)
    try {
      text.clear().writerIndex(bytes)
      cipher.segment(segment, last = left == whole)
      cipher(inboxAt + at, OpenSsl.addressOf(text), bytes)
      if (!cipher.isGenuine(inboxAt + at + bytes))
        throw new IOException(
          "bytes that were encrypted by AES-GCM were changed on their way: the connection is given up"
        )
    } catch { case error: Throwable => text.release(); throw error }
    left -= whole
    segment += 1
    text
  }

  override def handlerRemoved(context: ChannelHandlerContext): Unit = {
    isOver = true
    cipher.close()
  }
}

private object GcmDecryption {
  val SegmentsAtOnce = 4
}
