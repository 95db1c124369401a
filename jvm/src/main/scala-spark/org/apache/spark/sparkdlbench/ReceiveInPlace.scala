package org.apache.spark.sparkdlbench

import io.netty.buffer.{ByteBuf, ByteBufAllocator, Unpooled}
import io.netty.channel.ChannelHandler.Sharable
import io.netty.channel._
import io.netty.util.UncheckedBooleanSupplier
import io.netty.util.concurrent.FastThreadLocal
import org.apache.spark.internal.Logging
import org.apache.spark.network.BlockTransferService
import org.apache.spark.network.netty.NettyBlockTransferService
import org.apache.spark.network.server.TransportServer
import sparkdlbench.transport.BlockStreamReader

import scala.util.control.NonFatal

/**
 * Lets the block-transfer server read the inside of our uploads straight to where their messages belong, instead of to a buffer
 * of Netty's from which they would have to be copied.
 *
 * What Spark's server reads and does is not changed: each connection that it accepts gets a buffer allocator that asks the
 * stream under way for memory, and takes Netty's own where none is under way. Not where something in between turns the bytes
 * into others (encryption, TLS): there the allocator stays out of it.
 */
private[sparkdlbench] object ReceiveInPlace extends Logging {
  private val handling = new FastThreadLocal[Connection]
  private var installed = Option.empty[TransportServer]

  /** The connection whose bytes this thread hands on now; null outside of that, and where `install` did not work. */
  def current: Connection = handling.get()

  /** For connections that the server accepts from now on. Repeated calls change nothing. */
  def install(service: BlockTransferService): Unit = synchronized {
    service match {
      case netty: NettyBlockTransferService =>
        try {
          val server = field[TransportServer](classOf[NettyBlockTransferService], netty, "server")
          if (!installed.contains(server)) {
            field[ChannelFuture](classOf[TransportServer], server, "channelFuture")
              .channel()
              .pipeline()
              .addFirst(Accepting)
            installed = Some(server)
          }
        } catch {
          case NonFatal(cause) => logWarning(s"Messages are copied once more as they arrive: $cause", cause)
        }
      case _ => // BlockStreamNetwork.obstacle says why such a session cannot be served at all
    }
  }

  private def field[T](owner: Class[_], of: AnyRef, name: String): T = {
    val found = owner.getDeclaredFields
      .find(field => field.getName == name || field.getName.endsWith("$" + name))
      .getOrElse(throw new NoSuchFieldException(s"${owner.getName}.$name"))
    found.setAccessible(true)
    found.get(of).asInstanceOf[T]
  }

  /** Sees every connection that the server accepts, before Spark sets it up. */
  @Sharable
  private object Accepting extends ChannelInboundHandlerAdapter {
    override def channelRead(context: ChannelHandlerContext, message: AnyRef): Unit = {
      message match {
        case accepted: Channel =>
          val connection = new Connection(accepted)
          accepted.config().setRecvByteBufAllocator(connection.allocator)
          accepted.pipeline().addFirst(connection)
        case _ =>
      }
      context.fireChannelRead(message): Unit
    }
  }

  /** One accepted connection. Its methods are called by the connection's event loop alone. */
  final class Connection(channel: Channel) extends ChannelInboundHandlerAdapter {
    private var reader: BlockStreamReader = _

    /** From now on bytes belong to this stream, until `detach`. */
    def attach(stream: BlockStreamReader): Unit = if (channel.pipeline().first() eq this) reader = stream

    def detach(): Unit = reader = null

    override def channelRead(context: ChannelHandlerContext, message: AnyRef): Unit = {
      handling.set(this)
      try context.fireChannelRead(message): Unit
      finally handling.remove()
    }

    val allocator: RecvByteBufAllocator = new RecvByteBufAllocator {
      private val usual = new AdaptiveRecvByteBufAllocator
      override def newHandle(): RecvByteBufAllocator.ExtendedHandle =
        new Lending(usual.newHandle().asInstanceOf[RecvByteBufAllocator.ExtendedHandle])
    }

    private final class Lending(usual: RecvByteBufAllocator.ExtendedHandle)
        extends RecvByteBufAllocator.DelegatingHandle(usual)
        with RecvByteBufAllocator.ExtendedHandle {

      override def allocate(buffers: ByteBufAllocator): ByteBuf = {
        val memory = if (reader == null) null else reader.lend()
        if (memory == null) super.allocate(buffers) else Unpooled.wrappedBuffer(memory).clear()
      }

      override def continueReading(maybeMore: UncheckedBooleanSupplier): Boolean = usual.continueReading(maybeMore)
    }
  }
}
