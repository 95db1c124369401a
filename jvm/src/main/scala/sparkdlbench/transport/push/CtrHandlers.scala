package sparkdlbench.transport.push

import io.netty.buffer.{ByteBuf, Unpooled}
import io.netty.channel._

import java.nio.ByteBuffer
import java.util.ArrayList

/** Encrypts what is written to a connection by one key stream. */
final class CtrEncryption(cipher: AesCtr) extends GatheredEncryption {
  private val piece = ByteBuffer.allocateDirect(CtrEncryption.PieceBytes).limit(0)

  protected def encrypted(parts: ArrayList[ByteBuf]): EncryptedParts = new EncryptedParts(parts, piece) {
    private var left = plainBytes
    override val count: Long = plainBytes
    protected def encrypt(source: Long, target: Long, bytes: Int): Unit = cipher(source, target, bytes)
    protected def fill(piece: ByteBuffer): Unit = {
      val now = math.min(left, piece.remaining.toLong).toInt
      take(now)
      left -= now
    }
  }

  protected def end(): Unit = cipher.close()
}

object CtrEncryption {
  val PieceBytes: Int = 128 << 10
}

/** Decrypts what a connection reads where it lies: in the memory that a stream has lent (`LendingAllocator`), too. */
final class CtrDecryption(cipher: AesCtr) extends ChannelInboundHandlerAdapter {
  override def channelRead(context: ChannelHandlerContext, message: AnyRef): Unit = message match {
    case bytes: ByteBuf => context.fireChannelRead(decrypted(context, bytes)): Unit
    case other => context.fireChannelRead(other): Unit
  }

  private def decrypted(context: ChannelHandlerContext, bytes: ByteBuf): ByteBuf = {
    val count = bytes.readableBytes
    val at = OpenSsl.addressOf(bytes)
    if (at != 0) { cipher(at, at, count); bytes }
    else
      try {
        val copy = ByteBuffer.allocateDirect(count)
        bytes.getBytes(bytes.readerIndex, copy)
        val place = OpenSsl.addressOf(copy)
        cipher(place, place, count)
        Unpooled.wrappedBuffer(copy.flip())
      } finally bytes.release(): Unit
  }

  override def handlerRemoved(context: ChannelHandlerContext): Unit = cipher.close()
}
