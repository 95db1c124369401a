package sparkdlbench.transport
package push

import io.netty.buffer.{ByteBuf, ByteBufAllocator, Unpooled}
import io.netty.channel.{AdaptiveRecvByteBufAllocator, RecvByteBufAllocator}
import io.netty.util.UncheckedBooleanSupplier

import java.nio.ByteBuffer

/**
 * Where a connection's bytes are read to: the place that is lent for them, such as the stream under way does
 * (`FrameReader.lend`), so that nobody has to copy them from there, else a buffer of Netty's own.
 *
 * @param lend
 *   a place for the next bytes, null where there is none; asked by the connection's event loop alone
 */
final class LendingAllocator(lend: () => ByteBuffer) extends RecvByteBufAllocator {
  private val usual = new AdaptiveRecvByteBufAllocator
  usual.maxMessagesPerRead(LendingAllocator.ReadsAtOnce)

  override def newHandle(): RecvByteBufAllocator.ExtendedHandle =
    new Lending(usual.newHandle().asInstanceOf[RecvByteBufAllocator.ExtendedHandle])

  private final class Lending(usual: RecvByteBufAllocator.ExtendedHandle)
      extends RecvByteBufAllocator.DelegatingHandle(usual)
      with RecvByteBufAllocator.ExtendedHandle {

    override def allocate(buffers: ByteBufAllocator): ByteBuf = {
      val memory = lend()
      if (memory == null) super.allocate(buffers) else Unpooled.wrappedBuffer(memory).clear()
    }

    override def continueReading(maybeMore: UncheckedBooleanSupplier): Boolean = usual.continueReading(maybeMore)
  }
}

object LendingAllocator {

  /** Before other connections have their turn; what Netty gives a channel by itself. */
  private val ReadsAtOnce = 16
}
