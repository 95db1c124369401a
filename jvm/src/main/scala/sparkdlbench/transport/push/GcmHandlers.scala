package sparkdlbench.transport.push

import io.netty.buffer.ByteBuf
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
    private var prefix = Array.emptyByteArray

    protected def encrypt(source: Long, target: Long, bytes: Int): Unit = cipher(source, target, bytes)

    protected def fill(piece: ByteBuffer): Unit =
      while (left > 0 && piece.remaining >= LengthBytes + headerBytes(key) + SegmentBytes) {
        if (inMessage == 0) begin(piece)
        val bytes = math.min(inMessage, PlainBytes.toLong).toInt
        cipher.segment(nonce(prefix, segment, last = bytes == inMessage))
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
      prefix = GcmEncryption.random(PrefixBytes)
      cipher.begin(GcmFormat.key(key, salt, length))
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
 * @param key
 *   of the connection
 */
final class GcmDecryption(key: Array[Byte]) extends ChannelInboundHandlerAdapter {
  import GcmFormat._
  private val cipher = new AesGcm(encrypts = false)
  private val head = ByteBuffer.allocate(LengthBytes + headerBytes(key))

  /** Of a segment what has been read; those that arrive whole are decrypted from where they lie. */
  private val begun = ByteBuffer.allocateDirect(SegmentBytes)
  private val begunAt = OpenSsl.addressOf(begun)

  // Of the message under way.
  private var left = 0L
  private var segment = 0
  private var prefix = Array.emptyByteArray
  private var isBroken = false

  override def channelRead(context: ChannelHandlerContext, message: AnyRef): Unit = message match {
    case bytes: ByteBuf =>
      val plain = context.alloc().directBuffer(bytes.readableBytes + begun.position())
      try {
        if (isBroken) throw new IOException("the connection was given up before")
        while (bytes.isReadable) if (left == 0) begin(bytes) else decrypt(bytes, plain)
      } catch { case error: Throwable => isBroken = true; plain.release(); throw error }
      finally bytes.release(): Unit
      if (plain.isReadable) context.fireChannelRead(plain): Unit else plain.release(): Unit
    case other => context.fireChannelRead(other): Unit
  }

  private def begin(bytes: ByteBuf): Unit = {
    val now = math.min(bytes.readableBytes, head.remaining)
    bytes.readBytes(head.slice(head.position(), now))
    head.position(head.position() + now)
    if (!head.hasRemaining) {
      head.flip()
      val length = new Array[Byte](LengthBytes)
      head.get(length)
      val stated = ByteBuffer.wrap(length).getLong()
      val headerLength = head.get()
      if (stated <= head.capacity + TagBytes || headerLength != headerBytes(key))
        throw new IOException(
          s"a message that is encrypted by AES-GCM states $stated bytes and a header of $headerLength"
        )
      left = stated - head.capacity
      val salt = new Array[Byte](key.length)
      prefix = new Array[Byte](PrefixBytes)
      head.get(salt).get(prefix)
      head.clear()
      segment = 0
      cipher.begin(GcmFormat.key(key, salt, length))
    }
  }

  private def decrypt(bytes: ByteBuf, plain: ByteBuf): Unit = {
    val whole = math.min(left, SegmentBytes.toLong).toInt
    val source = OpenSsl.addressOf(bytes)
    if (begun.position() == 0 && bytes.readableBytes >= whole && source != 0) {
      open(source, whole, plain)
      bytes.skipBytes(whole): Unit
    } else {
      val now = math.min(bytes.readableBytes, whole - begun.position())
      bytes.readBytes(begun.slice(begun.position(), now))
      begun.position(begun.position() + now)
      if (begun.position() == whole) {
        open(begunAt, whole, plain)
        begun.clear(): Unit
      }
    }
  }

  private def open(source: Long, whole: Int, plain: ByteBuf): Unit = {
    val bytes = whole - TagBytes
    if (bytes <= 0) throw new IOException(s"a segment that is encrypted by AES-GCM has $whole bytes")
    plain.ensureWritable(bytes)
    cipher.segment(nonce(prefix, segment, last = left == whole))
    cipher(source, plain.memoryAddress + plain.writerIndex, bytes)
    if (!cipher.isGenuine(source + bytes))
      throw new IOException(
        "bytes that were encrypted by AES-GCM were changed on their way: the connection is given up"
      )
    plain.writerIndex(plain.writerIndex + bytes)
    left -= whole
    segment += 1
  }

  override def handlerRemoved(context: ChannelHandlerContext): Unit = cipher.close()
}
