package sparkdlbench.transport.tcp

import io.netty.buffer.{ByteBuf, Unpooled}
import io.netty.channel._
import io.netty.handler.codec.ByteToMessageDecoder
import org.apache.spark.internal.Logging
import sparkdlbench.common.RunFailedException
import sparkdlbench.transport.push.{FrameReader, LendingAllocator, Mailbox}

import java.nio.ByteBuffer
import java.util.concurrent.TimeUnit
import java.util.concurrent.atomic.{AtomicInteger, AtomicLong}
import scala.jdk.CollectionConverters._

/**
 * What one rank's server does with every connection it accepts: a handshake, then frames for the rank's mailbox. Whoever cannot
 * prove to be of the run is refused and counted, and touches nothing else; the log names the first of them.
 *
 * @param rank
 *   whose server this is
 * @param expected
 *   connections that the run's own ranks may be opening at one moment: each one at each address, and one that just ends
 * @param tls
 *   None for plain connections
 */
private[tcp] final class TcpServer(rank: Int, handshake: Handshake, expected: () => Int, tls: Option[TlsPair])
    extends ChannelInitializer[Channel]
    with Logging {
  private def most = TcpServer.MaxStrangers + expected()
  private val strangers = new AtomicInteger
  private val refusals = new AtomicLong

  /** Those on which streams arrive. */
  private val admitted = java.util.concurrent.ConcurrentHashMap.newKeySet[Channel]()

  /**
   * Tells the other ends that this rank leaves, before its connections are closed. Its goodbye travels the other way, on a connection of its
   * own, and may be read after the end of this one, which then would seem to be a loss.
   */
  def leave(): Unit = {
    val told = admitted.asScala.toSeq.map(_.writeAndFlush(Unpooled.wrappedBuffer(Array(TcpServer.Left))))
    val end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(TcpServer.LeaveMillis)
    told.foreach { one =>
      // One that this thread serves has been written by now.
      if (!one.isDone && !one.channel().eventLoop().inEventLoop())
        one.awaitUninterruptibly(math.max(0L, end - System.nanoTime()), TimeUnit.NANOSECONDS): Unit
    }
  }

  /** Connections that were refused so far. */
  def refused: Long = refusals.get

  override protected def initChannel(channel: Channel): Unit =
    if (strangers.incrementAndGet() > most) {
      strangers.decrementAndGet()
      refuse(channel, s"more than $most connections wait for their proof")
    } else {
      val entry = new Entry
      val timer = channel
        .eventLoop()
        .schedule((() => entry.late(channel)): Runnable, TcpServer.HandshakeMillis, TimeUnit.MILLISECONDS)
      channel.closeFuture().addListener { (_: io.netty.util.concurrent.Future[Void]) =>
        timer.cancel(false); entry.leave()
      }
      // Netty asks for it once, at the first read.
      if (tls.isEmpty) channel.config().setRecvByteBufAllocator(new LendingAllocator(() => entry.lend()))
      tls.foreach(pair => channel.pipeline().addLast(pair.server(channel.alloc())))
      channel.pipeline().addLast(entry)
    }

  private def refuse(channel: Channel, why: String): Unit = {
    // They may come without end.
    if (refusals.incrementAndGet() <= TcpServer.LoggedRefusals)
      logWarning(s"A connection from ${channel.remoteAddress()} to rank $rank's transport was refused: $why.")
    channel.close(): Unit
  }

  /** The server's side of the handshake; makes room for the stream's frames when it has succeeded. */
  private final class Entry extends ByteToMessageDecoder {
    private var hello: Array[Byte] = _
    private var nonce: Array[Byte] = _
    private var waiting = true

    /** Of the stream's frames; null until the peer has proved who it is. */
    private var reader: FrameReader = _

    /** Where its next bytes belong; null where nothing is lent. */
    def lend(): ByteBuffer = if (reader == null) null else reader.lend()

    def late(channel: Channel): Unit =
      if (waiting) refuse(channel, s"it gave no proof within ${TcpServer.HandshakeMillis} ms")

    def leave(): Unit = if (waiting) { waiting = false; strangers.decrementAndGet(): Unit }

    override protected def decode(context: ChannelHandlerContext, in: ByteBuf, out: java.util.List[AnyRef]): Unit =
      if (!context.channel().isOpen) in.skipBytes(in.readableBytes): Unit // refused: what came with it is no second try
      else if (hello == null) {
        if (in.readableBytes >= Handshake.HelloBytes) greet(context, take(in, Handshake.HelloBytes))
      } else if (waiting && in.readableBytes >= Handshake.ProofBytes) admit(context, take(in, Handshake.ProofBytes))

    private def greet(context: ChannelHandlerContext, bytes: Array[Byte]): Unit = handshake.read(bytes) match {
      case Some(read) if read.stream.to == rank =>
        hello = bytes
        nonce = handshake.freshNonce()
        context.writeAndFlush(Unpooled.wrappedBuffer(nonce, handshake.serverProof(hello, nonce))): Unit
      case Some(read) => refuse(context.channel(), s"it looks for rank ${read.stream.to}")
      case None => refuse(context.channel(), "it does not speak this protocol")
    }

    private def admit(context: ChannelHandlerContext, proof: Array[Byte]): Unit = {
      val read = handshake.read(hello).get
      if (!handshake.same(proof, handshake.clientProof(hello, nonce)))
        refuse(context.channel(), "it does not know the run's secret")
      else if (read.isProbe) {
        leave()
        context.writeAndFlush(accepted).addListener(ChannelFutureListener.CLOSE): Unit
      } else
        Mailbox.find(read.stream.inbox, rank) match {
          case None => refuse(context.channel(), s"rank ${read.stream.from} belongs to another attempt")
          case Some(mailbox) =>
            leave()
            reader = mailbox.reader(read.stream.from, read.number, read.of)
            reader.beginEndless()
            val frames = new Frames(mailbox, reader, read.stream.from)
            context.pipeline().addLast(frames)
            context.writeAndFlush(accepted)
            admitted.add(context.channel())
            context.channel().closeFuture().addListener { (_: io.netty.util.concurrent.Future[Void]) =>
              admitted.remove(context.channel()): Unit
            }
            mailbox.arrivesBy(context.channel())
            context.pipeline().remove(this): Unit // what it has read beyond the proof goes on to the frames
        }
    }

    private def accepted: ByteBuf = Unpooled.wrappedBuffer(Array(TcpServer.Accepted))

    private def take(in: ByteBuf, count: Int): Array[Byte] = {
      val bytes = new Array[Byte](count)
      in.readBytes(bytes)
      bytes
    }

    override def exceptionCaught(context: ChannelHandlerContext, cause: Throwable): Unit =
      refuse(context.channel(), String.valueOf(cause.getMessage))
  }

  /** Gives a stream's bytes to its reader. */
  private final class Frames(mailbox: Mailbox, reader: FrameReader, from: Int) extends ChannelInboundHandlerAdapter {
    override def channelRead(context: ChannelHandlerContext, message: AnyRef): Unit = {
      val bytes = message.asInstanceOf[ByteBuf]
      try bytes.nioBuffers().foreach(reader.accept)
      finally bytes.release(): Unit
    }

    override def channelInactive(context: ChannelHandlerContext): Unit = broken("it was closed")

    override def exceptionCaught(context: ChannelHandlerContext, cause: Throwable): Unit = {
      broken(String.valueOf(cause.getMessage))
      context.close(): Unit
    }

    private def broken(why: String): Unit = if (!mailbox.hasLeft(from))
      mailbox.fail(new RunFailedException(s"the stream from rank $from to rank $rank broke off: $why"))
  }
}

private[tcp] object TcpServer {
  val Accepted: Byte = 1

  /** The rank at this end leaves the group; nothing that is sent from now on is read. */
  val Left: Byte = 2
  val LeaveMillis = 1000L
  val HandshakeMillis = 10000L

  /** Connections at most that have not proved yet who they are, beside those that are expected. */
  val MaxStrangers = 256
  private val LoggedRefusals = 100
}
