package sparkdlbench.transport.tcp

import io.netty.buffer.Unpooled
import io.netty.channel.{Channel, ChannelFutureListener}
import sparkdlbench.transport.push.{Frame, NettyChannel, PushChannel, RankLoop}

import java.nio.ByteBuffer
import scala.collection.mutable

/**
 * Frames on one connection whose handshake is done. The rank's thread queues them; the connection's event loop writes header and
 * payload from where they lie, without a copy, by one gathering write.
 */
private[tcp] final class TcpChannel(connection: Channel, onFailure: Throwable => Unit, onDrained: () => Unit)
    extends NettyChannel(connection, onFailure, onDrained) {
  private var framing = 0L

  channel.closeFuture().addListener { (_: io.netty.util.concurrent.Future[Void]) =>
    // What is still to be sent to a rank that has left, nobody reads; what it owes us, it has sent before.
    if (channel.hasAttr(ClientHandshake.HasLeft)) finishing = true
    closed()
  }

  override def push(lane: Int, sequence: Long, payload: ByteBuffer): Unit = {
    checkOpen("the stream has been ended, or the rank has left")
    framing += Frame.HeaderBytes
    if (lane < 0) framing += payload.remaining
    val data = payload.duplicate()
    countQueued()
    val loop = channel.eventLoop()
    if (loop.inEventLoop()) write(lane, sequence, data) else loop.execute(() => write(lane, sequence, data))
  }

  private def write(lane: Int, sequence: Long, data: ByteBuffer): Unit = {
    val header = Frame.header(channel.alloc(), lane, data.remaining, sequence)
    if (data.hasRemaining) {
      channel.write(header, channel.voidPromise())
      channel.writeAndFlush(Unpooled.wrappedBuffer(data)).addListener(done): Unit
    } else channel.writeAndFlush(header).addListener(done): Unit
  }

  override def framingBytes: Long = framing

  override def finish(): Unit = if (!finishing && !isBroken) {
    finishing = true
    // After all that was queued before it.
    channel.eventLoop().execute { () =>
      channel.writeAndFlush(Unpooled.EMPTY_BUFFER).addListener(ChannelFutureListener.CLOSE): Unit
    }
  }
}

/**
 * Several connections to one rank: a lane keeps to one of them, so its messages stay in order. They are handed out in turn, as lanes to
 * that rank are used for the first time: the numbers of those lanes may all be even.
 */
private[tcp] final class Striped(channels: IndexedSeq[PushChannel]) extends PushChannel {
  private val taken = mutable.LongMap.empty[PushChannel]

  override def push(lane: Int, sequence: Long, payload: ByteBuffer): Unit =
    (if (lane < 0) channels.head else of(lane)).push(lane, sequence, payload)

  private def of(lane: Int): PushChannel = {
    val known = taken.getOrNull(lane.toLong)
    if (known != null) known
    else {
      val next = channels(taken.size % channels.size)
      taken.update(lane.toLong, next)
      next
    }
  }

  /** On every connection, so that it comes after all that went before on each. */
  override def pushLast(payload: ByteBuffer): Unit = channels.foreach(_.push(Frame.ControlLane, 0, payload))

  override def serveBy(loop: RankLoop): Unit = channels.foreach(_.serveBy(loop))

  override def sockets: Seq[Channel] = channels.flatMap(_.sockets)
  override def isDrained: Boolean = channels.forall(_.isDrained)
  override def framingBytes: Long = channels.map(_.framingBytes).sum
  override def finish(): Unit = channels.foreach(_.finish())
  override def isFinished: Boolean = channels.forall(_.isFinished)
  override def abort(): Unit = channels.foreach(_.abort())
}
