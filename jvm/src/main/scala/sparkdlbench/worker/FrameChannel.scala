package sparkdlbench.worker

import java.io.{EOFException, IOException}
import java.nio.channels.SocketChannel
import java.nio.{ByteBuffer, ByteOrder}

/**
 * One request or answer: 16 bytes (length of the body, kind, id; little-endian int32, int32, int64), then the body.
 *
 * @param kind
 *   of a request what is asked, of an answer how it ended (`Answer`)
 * @param id
 *   of a request; its answer has the same
 * @param body
 *   valid until the next frame is read
 */
private[worker] final case class Frame(kind: Int, id: Long, body: ByteBuffer)

/** The peer sent what nobody of ours sends. It ends the connection, and nothing else. */
private[worker] final class ProtocolException(message: String) extends IOException(message)

/**
 * The frames of one connection. Whatever the peer sends, a connection takes no more than `FrameChannel.MostBytes` of memory. Read by one thread,
 * written by any.
 */
private[worker] final class FrameChannel(socket: SocketChannel) extends AutoCloseable {
  private var in = ByteBuffer.allocateDirect(FrameChannel.FirstBytes).order(ByteOrder.LITTLE_ENDIAN).limit(0)
  private var out = ByteBuffer.allocateDirect(FrameChannel.FirstBytes).order(ByteOrder.LITTLE_ENDIAN)

  /** The next `count` bytes, which are fewer than a frame's head may be long. */
  def bytes(count: Int): Array[Byte] = {
    need(count)
    val result = new Array[Byte](count)
    in.get(result)
    result
  }

  /** Waits for the next frame; an EOFException where the peer has closed the connection. */
  def read(): Frame = {
    need(FrameChannel.HeadBytes)
    val length = in.getInt()
    val (kind, id) = (in.getInt(), in.getLong())
    if (length < 0 || length > FrameChannel.MostBody)
      throw new ProtocolException(s"a request announces $length bytes; it may have ${FrameChannel.MostBody}")
    need(length)
    val body = in.slice(in.position(), length).order(ByteOrder.LITTLE_ENDIAN)
    in.position(in.position() + length)
    Frame(kind, id, body)
  }

  def write(kind: Int, id: Long, body: Array[Byte]): Unit = synchronized {
    if (out.capacity < FrameChannel.HeadBytes + body.length)
      out = ByteBuffer.allocateDirect(FrameChannel.HeadBytes + body.length).order(ByteOrder.LITTLE_ENDIAN)
    out.clear()
    out.putInt(body.length).putInt(kind).putLong(id).put(body).flip()
    while (out.hasRemaining) socket.write(out)
    if (out.capacity > FrameChannel.KeptBytes)
      out = ByteBuffer.allocateDirect(FrameChannel.FirstBytes).order(ByteOrder.LITTLE_ENDIAN)
  }

  /** Has at least `count` unread bytes in `in`. */
  private def need(count: Int): Unit = if (in.remaining < count) {
    if (in.capacity < count) {
      val larger = ByteBuffer.allocateDirect(math.max(count, 2 * in.capacity)).order(ByteOrder.LITTLE_ENDIAN)
      in = larger.put(in).flip()
    }
    in.compact()
    try
      while (in.position() < count)
        if (socket.read(in) < 0) throw new EOFException("the peer has closed the connection")
    finally in.flip()
  }

  override def close(): Unit = socket.close()
}

private[worker] object FrameChannel {
  val HeadBytes = 16

  /** Of the longest request. */
  val MostBody: Int = 1 << 20
  private val FirstBytes = 1 << 14
  private val KeptBytes = 1 << 20

  /** Direct memory that the requests of one connection may take. */
  val MostBytes: Int = 2 * (MostBody + HeadBytes)
}

/** How a request ended; the body of all but `Done` is the reason, as a user reads it. */
private[worker] object Answer {
  val Done = 0

  /** A `ConfigurationException`. */
  val UserError = 1

  /** A `RunFailedException`. */
  val Failed = 2

  /** Anything else. */
  val Bug = 3
}
