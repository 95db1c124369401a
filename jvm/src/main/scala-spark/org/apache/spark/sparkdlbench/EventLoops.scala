package org.apache.spark.sparkdlbench

import io.netty.channel.epoll.Epoll
import io.netty.channel.{Channel, EventLoopGroup, ServerChannel}
import org.apache.spark.network.util.{IOMode, NettyUtils}
import sparkdlbench.transport.push.RankLoop

/** Netty's threads and channels as Spark makes them, whatever Netty it brings: native epoll where it is there, else NIO. */
object EventLoops {
  private val mode: IOMode = if (Epoll.isAvailable) IOMode.EPOLL else IOMode.NIO

  /** A loop for the calling thread to run, for channels as below; None where Netty has none. */
  def rankLoop(): Option[RankLoop] = SparkLine.rankLoop(mode)

  def group(threads: Int, prefix: String): EventLoopGroup = NettyUtils.createEventLoop(mode, threads, prefix)
  def clientChannel: Class[_ <: Channel] = NettyUtils.getClientChannelClass(mode)
  def serverChannel: Class[_ <: ServerChannel] = NettyUtils.getServerChannelClass(mode)
}
