package org.apache.spark.sparkdlbench

import io.netty.channel.{Channel, EventLoop, IoHandlerFactory, ManualIoEventLoop}
import org.apache.spark.internal.Logging
import sparkdlbench.transport.push.RankLoop

import java.util.concurrent.TimeUnit
import scala.collection.mutable

/** The loop that Netty 4.2 has for threads of other people's. */
private[sparkdlbench] final class NettyRankLoop(handler: IoHandlerFactory) extends RankLoop with Logging {
  import NettyRankLoop._
  private val owner = Thread.currentThread()
  private val loop = new ManualIoEventLoop(owner, handler)
  // Each connection's former loop. Guarded by this, like those two.
  private val former = mutable.Map.empty[Channel, EventLoop]
  private var moving = 0
  private var closed = false

  override def adopt(channel: Channel): Unit = {
    val isNew = synchronized {
      val is = !closed && channel.isOpen && !former.contains(channel)
      if (is) former(channel) = channel.eventLoop()
      is
    }
    if (isNew) {
      channel.closeFuture().addListener((_: io.netty.util.concurrent.Future[Void]) => forget(channel))
      move(channel, loop)
    }
    if (Thread.currentThread() eq owner) until(synchronized(moving == 0))
  }

  private def forget(channel: Channel): Unit = synchronized(former.remove(channel): Unit)

  /** What a loop reads of a channel after `deregister` was called, it still hands on before it lets go of it. */
  private def move(channel: Channel, to: EventLoop): Unit = {
    synchronized(moving += 1)
    channel.deregister().addListener { (left: io.netty.util.concurrent.Future[Void]) =>
      if (!left.isSuccess || !channel.isOpen) moved(channel, left.cause)
      else
        to.register(channel).addListener { (entered: io.netty.util.concurrent.Future[Void]) =>
          moved(channel, entered.cause)
        }: Unit
    }: Unit
  }

  private def moved(channel: Channel, failure: Throwable): Unit = {
    if (failure != null && channel.isOpen) {
      logError(s"$channel could not be handed from thread to thread and is closed: $failure", failure)
      channel.close()
    }
    synchronized(moving -= 1)
    loop.wakeup()
  }

  override def serve(waitNanos: Long): Unit =
    if (waitNanos > 0) loop.run(waitNanos) else loop.runNow(): Unit

  override def wakeUp(): Unit = loop.wakeup()

  override def close(): Unit = {
    val lent = synchronized { closed = true; former.toSeq }
    until(synchronized(moving == 0))
    lent.filter(_._1.isOpen).foreach { case (channel, home) => move(channel, home) }
    until(synchronized(moving == 0))
    loop.shutdownGracefully(0, 0, TimeUnit.MILLISECONDS)
    until(loop.isTerminated)
  }

  private def until(done: => Boolean): Unit = {
    val deadline = System.nanoTime() + MoveNanos
    while (!done && System.nanoTime() < deadline) serve(PieceNanos)
    if (!done) logWarning(s"Connections did not change hands within ${MoveNanos / 1000000L} ms.")
  }
}

private[sparkdlbench] object NettyRankLoop {
  private val MoveNanos = 3000000000L
  private val PieceNanos = 1000000L
}
