package sparkdlbench.transport.push

import io.netty.buffer.ByteBuf
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
abstract class GatheredEncryption extends ChannelOutboundHandlerAdapter {
  private var parts = new ArrayList[ByteBuf]
  private var promises = new ArrayList[ChannelPromise]

  /** What is to be written for buffers that were flushed together, one behind the other; releases them. */
  protected def encrypted(parts: ArrayList[ByteBuf]): EncryptedParts

  /** No more is written. */
  protected def end(): Unit

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
      val written = context.write(encrypted(parts), context.newPromise())
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
    end()
  }
}

/**
 * Buffers that are written one after the other, encrypted.
 *
 * @param piece
 *   what is encrypted and not written yet: of the one of a connection's messages that is being written
 */
abstract class EncryptedParts(parts: ArrayList[ByteBuf], piece: ByteBuffer)
    extends AbstractReferenceCounted
    with FileRegion {
  private val pieceAt = OpenSsl.addressOf(piece)
  private var next = 0
  private var written = 0L

  /** Bytes of all buffers. */
  protected final val plainBytes: Long = { var sum = 0L; parts.forEach(part => sum += part.readableBytes); sum }

  /** Puts more encrypted bytes to the empty piece, at least one; called while some are due. */
  protected def fill(piece: ByteBuffer): Unit

  /** From one address to another or to the same. */
  protected def encrypt(source: Long, target: Long, bytes: Int): Unit

  /** The next `bytes` bytes of the buffers go to the piece, encrypted. */
  protected final def take(bytes: Int): Unit = {
    var left = bytes
    while (left > 0) {
      val part = parts.get(next)
      val now = math.min(part.readableBytes, left)
      takeOf(part, now)
      left -= now
      if (!part.isReadable) next += 1
    }
  }

  private def takeOf(part: ByteBuf, bytes: Int): Unit = if (bytes > 0) {
    val (source, target) = (OpenSsl.addressOf(part), pieceAt + piece.position())
    if (source != 0) encrypt(source, target, bytes)
    else {
      part.getBytes(part.readerIndex, piece.slice(piece.position(), bytes))
      encrypt(target, target, bytes)
    }
    part.skipBytes(bytes)
    piece.position(piece.position() + bytes): Unit
  }

  override def transferTo(target: WritableByteChannel, position: Long): Long = {
    val before = written
    var taken = true
    while (taken && written < count()) {
      if (!piece.hasRemaining) {
        piece.clear()
        fill(piece)
        piece.flip()
      }
      written += target.write(piece)
      taken = !piece.hasRemaining
    }
    written - before
  }

  override def position(): Long = 0
  override def transferred(): Long = written
  override def transfered(): Long = written
  override protected def deallocate(): Unit = parts.forEach(_.release(): Unit)
  override def touch(hint: AnyRef): FileRegion = this
  override def touch(): FileRegion = this
  override def retain(): FileRegion = { super.retain(); this }
  override def retain(increment: Int): FileRegion = { super.retain(increment); this }
}
