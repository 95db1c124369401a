package sparkdlbench.transport.push

import io.netty.channel.{Channel, ChannelFutureListener}

import java.io.IOException
import java.util.concurrent.atomic.{AtomicBoolean, AtomicLong}

/**
 * What channels over one of Netty's connections have in common, however their frames look: the rank's thread counts what it queues, the
 * connection's event loop what it has written; what breaks the connection is kept, told once, and thrown at whoever pushes next.
 *
 * @param onFailure
 *   as of `PushNetwork.connect`
 * @param onDrained
 *   as of `PushNetwork.connect`
 */
abstract class NettyChannel(protected val channel: Channel, onFailure: Throwable => Unit, onDrained: () => Unit)
    extends PushChannel {
  private val queued = new AtomicLong
  private val written = new AtomicLong
  private val broken = new AtomicBoolean
  @volatile private var failure: Throwable = _

  /** Nothing more is to come: that the connection is closed is no failure any more. */
  @volatile protected var finishing = false

  /** Hears of the last write of every frame that was counted as queued. */
  protected final val done: ChannelFutureListener = future => {
    if (!future.isSuccess) fail(future.cause)
    written.incrementAndGet()
    onDrained()
  }

  /** Throws where no frame can be pushed. @param ended why, where nothing is broken */
  protected final def checkOpen(ended: String): Unit = {
    if (failure != null) throw new IOException(failure.getMessage, failure)
    if (finishing) throw new IOException(ended)
  }

  /** A frame is about to be handed to the event loop. */
  protected final def countQueued(): Unit = queued.incrementAndGet(): Unit

  protected final def fail(cause: Throwable): Unit = {
    if (failure == null) failure = cause
    if (!finishing && broken.compareAndSet(false, true)) onFailure(cause)
    onDrained()
  }

  /** The connection is closed. */
  protected final def closed(): Unit =
    if (finishing) onDrained() else fail(new IOException("the connection was closed"))

  protected final def isBroken: Boolean = failure != null
  protected final def allWritten: Boolean = queued.get == written.get

  override def serveBy(loop: RankLoop): Unit = loop.adopt(channel)

  override def sockets: Seq[Channel] = Seq(channel)

  override def isDrained: Boolean = allWritten || isBroken || finishing && !channel.isOpen

  override def isFinished: Boolean = isBroken || !channel.isOpen

  override def abort(): Unit = { finishing = true; channel.close(): Unit }
}
