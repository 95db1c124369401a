package sparkdlbench.transport.push

import io.netty.buffer.{ByteBuf, Unpooled}
import io.netty.channel._
import io.netty.handler.codec.UnsupportedMessageTypeException
import io.netty.util.{AbstractReferenceCounted, ReferenceCountUtil}

import java.nio.ByteBuffer
import java.nio.channels.{ClosedChannelException, WritableByteChannel}
import java.util.ArrayList

/**
 * Encrypts what is written to a connection, as the socket takes it: by pieces that stay in a core's cache, so that no more than one of
 * them has to be kept, and all that is flushed together goes out in as few writes as there are pieces. A message must stay as it is
 * until its promise is fulfilled. Buffers alone can be written.
 */
final class CtrEncryption(cipher: AesCtr) extends ChannelOutboundHandlerAdapter {
  private val piece = ByteBuffer.allocateDirect(CtrEncryption.PieceBytes).limit(0)
  private var parts = new ArrayList[ByteBuf]
  private var promises = new ArrayList[ChannelPromise]

  override def write(context: ChannelHandlerContext, message: AnyRef, promise: ChannelPromise): Unit = message match {
    case bytes: ByteBuf =>
      parts.add(bytes)
      if (!promise.isVoid) promises.add(promise): Unit
    case other =>
      ReferenceCountUtil.release(other)
      promise.tryFailure(new UnsupportedMessageTypeException(other, classOf[ByteBuf])): Unit
  }

  override def flush(context: ChannelHandlerContext): Unit = {
    if (!parts.isEmpty) {
      val told = promises
      val written = context.write(new EncryptedParts(parts, cipher, piece), context.newPromise())
      parts = new ArrayList[ByteBuf]
      promises = new ArrayList[ChannelPromise]
      written.addListener((done: ChannelFuture) => tell(context, told, done))
    }
    context.flush(): Unit
  }

  private def tell(context: ChannelHandlerContext, told: ArrayList[ChannelPromise], done: ChannelFuture): Unit =
    if (done.isSuccess) told.forEach(_.trySuccess(): Unit)
    else if (told.isEmpty) context.fireExceptionCaught(done.cause): Unit
    else told.forEach(_.tryFailure(done.cause): Unit)

  override def handlerRemoved(context: ChannelHandlerContext): Unit = {
    parts.forEach(_.release(): Unit)
    parts.clear()
    promises.forEach(_.tryFailure(new ClosedChannelException): Unit)
    promises.clear()
    cipher.close()
  }
}

object CtrEncryption {
  val PieceBytes: Int = 128 << 10
}

/**
 * Buffers that are written one after the other, encrypted.
 *
 * @param piece
 *   what is encrypted and not written yet: of the one of a connection's messages that is being written
 */
private final class EncryptedParts(parts: ArrayList[ByteBuf], cipher: AesCtr, piece: ByteBuffer)
    extends AbstractReferenceCounted
    with FileRegion {
  private val total = { var sum = 0L; parts.forEach(part => sum += part.readableBytes); sum }
  private val pieceAt = AesCtr.addressOf(piece)
  private var next = 0
  private var written = 0L

  override def transferTo(target: WritableByteChannel, position: Long): Long = {
    val before = written
    var taken = true
    while (taken && written < total) {
      if (!piece.hasRemaining) fill()
      written += target.write(piece)
      taken = !piece.hasRemaining
    }
    written - before
  }

  private def fill(): Unit = {
    piece.clear()
    while (piece.hasRemaining && next < parts.size) {
      val part = parts.get(next)
      val bytes = math.min(part.readableBytes, piece.remaining)
      encrypt(part, bytes)
      part.skipBytes(bytes)
      if (!part.isReadable) next += 1
    }
    piece.flip(): Unit
  }

  private def encrypt(part: ByteBuf, bytes: Int): Unit = {
    val (source, target) = (AesCtr.addressOf(part), pieceAt + piece.position())
    if (source != 0) cipher(source, target, bytes)
    else {
      part.getBytes(part.readerIndex, piece.slice(piece.position(), bytes))
      cipher(target, target, bytes)
    }
    piece.position(piece.position() + bytes): Unit
  }

  override def count(): Long = total
  override def position(): Long = 0
  override def transferred(): Long = written
  override def transfered(): Long = written
  override protected def deallocate(): Unit = parts.forEach(_.release(): Unit)
  override def touch(hint: AnyRef): FileRegion = this
  override def touch(): FileRegion = this
  override def retain(): FileRegion = { super.retain(); this }
  override def retain(increment: Int): FileRegion = { super.retain(increment); this }
}

/** Decrypts what a connection reads where it lies: in the memory that a stream has lent (`LendingAllocator`), too. */
final class CtrDecryption(cipher: AesCtr) extends ChannelInboundHandlerAdapter {
  override def channelRead(context: ChannelHandlerContext, message: AnyRef): Unit = message match {
    case bytes: ByteBuf => context.fireChannelRead(decrypted(context, bytes)): Unit
    case other => context.fireChannelRead(other): Unit
  }

  private def decrypted(context: ChannelHandlerContext, bytes: ByteBuf): ByteBuf = {
    val count = bytes.readableBytes
    val at = AesCtr.addressOf(bytes)
    if (at != 0) { cipher(at, at, count); bytes }
    else
      try {
        val copy = ByteBuffer.allocateDirect(count)
        bytes.getBytes(bytes.readerIndex, copy)
        val place = AesCtr.addressOf(copy)
        cipher(place, place, count)
        Unpooled.wrappedBuffer(copy.flip())
      } finally bytes.release(): Unit
  }

  override def handlerRemoved(context: ChannelHandlerContext): Unit = cipher.close()
}
