package sparkdlbench.transport
package push

import io.netty.channel.Channel
import io.netty.channel.epoll.EpollChannelConfig
import io.netty.channel.unix.RawUnixChannelOption
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.Key

import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.US_ASCII
import scala.util.Try

/**
 * The congestion control of a rank's connections (TCP_CONGESTION, tcp(7)).
 *
 * Some systems choose BBR for all connections. It estimates a path's bandwidth and paces what is sent by that estimate (Cardwell et al.
 * 2016, "BBR: Congestion-based congestion control", ACM Queue 14(5)): made for long ways, and nothing but delay where a message is copied
 * from one process of a host to another.
 */
object Congestion {
  val key: Key[String] = Key(
    "congestion",
    "auto",
    "auto, system, or the name of a TCP congestion control that `sysctl net.ipv4.tcp_allowed_congestion_control` lists",
    "TCP congestion control of a rank's connections: auto (reno within a host whose system would pace them by BBR, else the system's), system, or a name such as cubic (Linux, native epoll)",
    text => Some(text).filter(_.matches("[a-z0-9_-]{1,15}"))
  )

  /** What a connection of this process to `peer` shall have, if something else than it has. */
  def choose(setting: String, sameHost: Boolean, now: Option[String]): Option[String] = setting match {
    case "auto" => if (sameHost && now.exists(_.startsWith(Pacing))) Some(Unpaced) else None
    case "system" => None
    case name => Some(name).filterNot(now.contains)
  }

  /** Chooses for these connections; what they have now, each name once. */
  def choose(channels: Seq[Channel], setting: String, sameHost: Boolean): Seq[String] = {
    channels.foreach { channel =>
      choose(setting, sameHost, of(channel)).foreach { name =>
        if (!set(channel, name) && setting != "auto") throw cannot(name, channel)
      }
    }
    channels.flatMap(of).distinct
  }

  /** None where the system does not say. */
  def of(channel: Channel): Option[String] = channel.config() match {
    case config: EpollChannelConfig =>
      Try(config.getOption(option(NameBytes))).toOption.map { bytes =>
        val name = new Array[Byte](bytes.remaining)
        bytes.duplicate().get(name)
        new String(name, US_ASCII).takeWhile(_ != 0)
      }
    case _ => None
  }

  private def set(channel: Channel, name: String): Boolean = channel.config() match {
    case config: EpollChannelConfig =>
      val text = name.getBytes(US_ASCII)
      Try(config.setOption(option(text.length), ByteBuffer.allocateDirect(text.length).put(text).flip()))
        .getOrElse(false)
    case _ => false
  }

  private def option(bytes: Int) = new RawUnixChannelOption("TCP_CONGESTION", TcpLevel, TcpCongestion, bytes)

  private def cannot(name: String, channel: Channel) = new ConfigurationException(
    s"congestion is '$name', but a ${channel.getClass.getSimpleName} could not be set to it. Valid are auto, system, and what " +
      "`sysctl net.ipv4.tcp_allowed_congestion_control` lists on that host, with Netty's native epoll (Linux; spark.shuffle.io.mode=EPOLL " +
      "for block-stream)."
  )

  private val Pacing = "bbr"
  private val Unpaced = "reno" // part of every Linux kernel, open to every user
  private val TcpLevel = 6
  private val TcpCongestion = 13
  private val NameBytes = 16
}
