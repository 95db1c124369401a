package org.apache.spark.sparkdlbench

import io.netty.buffer.ByteBuf
import io.netty.channel.ChannelHandler.Sharable
import io.netty.channel._
import io.netty.channel.epoll.EpollServerSocketChannel
import io.netty.channel.socket.nio.NioServerSocketChannel
import io.netty.util.concurrent.FastThreadLocal
import org.apache.spark.internal.Logging
import org.apache.spark.network.BlockTransferService
import org.apache.spark.network.netty.NettyBlockTransferService
import org.apache.spark.network.server.TransportServer
import org.apache.spark.network.util.IOMode
import sparkdlbench.transport.push.{Cipher, CtrDecryption, FrameReader, GcmDecryption, LendingAllocator}

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

/**
 * Lets the block-transfer server read the inside of our uploads straight to where their messages belong, instead of to a buffer
 * of Netty's from which they would have to be copied.
 *
 * What Spark's server reads and does is not changed: each connection that it accepts gets a buffer allocator that asks the
 * stream under way for memory, and takes Netty's own where none is under way. Not where something in between makes other bytes of
 * them elsewhere (TLS, encryption by Spark's own code): there the allocator stays out of it.
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
            listening(server).pipeline().addFirst(Accepting)
            installed = Some(server)
          }
        } catch {
          case NonFatal(cause) => logWarning(s"Messages are copied once more as they arrive: $cause", cause)
        }
      case _ => // PushNetwork.obstacle says why such a session cannot be served at all
    }
  }

  /** How the block-transfer server's connections are read and written, if `install` worked and it is a way that we know. */
  def mode: Option[IOMode] = synchronized(installed).map(listening).collect {
    case _: EpollServerSocketChannel => IOMode.EPOLL
    case _: NioServerSocketChannel => IOMode.NIO
  }

  private def listening(server: TransportServer): Channel =
    field[ChannelFuture](classOf[TransportServer], server, "channelFuture").channel()

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
  final class Connection(val channel: Channel) extends ChannelInboundHandlerAdapter {
    private var reader: FrameReader = _
    private var decryption: GcmDecryption = _
    private var decryptedBytes = 0L
    private var isToDecrypt = false

    /**
     * From now on bytes belong to this stream, until `detach`.
     *
     * @param cipher
     *   who decrypts them, where they are encrypted: a value of `Cipher.key`
     */
    def attach(stream: FrameReader, cipher: String): Unit = {
      if (cipher == Cipher.Auto && !isFirst) isToDecrypt = !decrypts()
      if (isFirst) reader = stream
    }

    private def decrypts(): Boolean = {
      val place = (bytes: Int) => if (reader == null) null else reader.lend(bytes)
      val done = SparkCiphers.decrypt(channel, decryptedBytes, place)
      decryption = channel.pipeline().get(classOf[GcmDecryption])
      done
    }

    /** Nothing that has arrived is being decrypted now. */
    override def channelReadComplete(context: ChannelHandlerContext): Unit = {
      if (isToDecrypt) isToDecrypt = !decrypts()
      context.fireChannelReadComplete(): Unit
    }

    /** Whether bytes are where the allocator had them read to, or where the decryption put them, as they were sent. */
    private def isFirst: Boolean =
      channel.pipeline().asScala.map(_.getValue).takeWhile(_ ne this).forall {
        case _: CtrDecryption | _: GcmDecryption => true
        case other => !other.isInstanceOf[ChannelInboundHandler]
      }

    def detach(): Unit = reader = null

    override def channelRead(context: ChannelHandlerContext, message: AnyRef): Unit = {
      message match {
        case bytes: ByteBuf if channel.pipeline().first() ne this => decryptedBytes += bytes.readableBytes
        case _ =>
      }
      handling.set(this)
      try context.fireChannelRead(message): Unit
      finally handling.remove()
    }

    val allocator: RecvByteBufAllocator = new LendingAllocator(() =>
      if (decryption != null) decryption.lend() else if (reader != null) reader.lend() else null
    )
  }
}
