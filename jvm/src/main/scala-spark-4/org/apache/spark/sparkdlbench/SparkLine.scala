package org.apache.spark.sparkdlbench

import io.netty.channel.epoll.EpollIoHandler
import io.netty.channel.nio.NioIoHandler
import org.apache.spark.network.util.IOMode
import sparkdlbench.transport.push.RankLoop

import scala.util.Try

/** What differs between the Spark lines that this package is built for. */
private[sparkdlbench] object SparkLine {

  /** From Spark 4.0 plugins start before the shuffle manager is made. */
  val pluginSetsShuffleManager: Boolean = true

  /** What Spark's pages are asked with. */
  type Request = jakarta.servlet.http.HttpServletRequest

  /** Spark 4.0 has Netty 4.1 still. */
  private lazy val hasManualLoops = Try(Class.forName("io.netty.channel.ManualIoEventLoop")).isSuccess

  /** A loop for the calling thread to run, for channels of this kind; None where there is none. */
  def rankLoop(mode: IOMode): Option[RankLoop] =
    if (!hasManualLoops) None
    else
      mode match {
        case IOMode.EPOLL => Some(new NettyRankLoop(EpollIoHandler.newFactory()))
        case IOMode.NIO => Some(new NettyRankLoop(NioIoHandler.newFactory()))
        case _ => None
      }
}
