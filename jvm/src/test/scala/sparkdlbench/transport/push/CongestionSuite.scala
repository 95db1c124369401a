package sparkdlbench.transport.push

import io.netty.bootstrap.{Bootstrap, ServerBootstrap}
import io.netty.channel.socket.nio.{NioServerSocketChannel, NioSocketChannel}
import io.netty.channel.{Channel, ChannelInboundHandlerAdapter, EventLoopGroup, ServerChannel}
import org.apache.spark.network.util.{IOMode, NettyUtils}
import org.apache.spark.sparkdlbench.EventLoops
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.Settings

import java.net.InetAddress
import java.util.concurrent.TimeUnit

/** What a connection's congestion control is set to, on sockets of the kernel. */
class CongestionSuite extends AnyFunSuite {
  private class Idle extends ChannelInboundHandlerAdapter { override def isSharable = true }

  private def connected(loops: EventLoopGroup, server: Class[_ <: ServerChannel], client: Class[_ <: Channel])(
      use: Channel => Unit
  ): Unit =
    try {
      val idle = new Idle
      val listening = new ServerBootstrap().group(loops).channel(server).childHandler(idle)
      val bound = listening.bind(InetAddress.getLoopbackAddress, 0).sync().channel()
      use(new Bootstrap().group(loops).channel(client).handler(idle).connect(bound.localAddress()).sync().channel())
    } finally loops.shutdownGracefully(0, 3, TimeUnit.SECONDS).sync(): Unit

  private def epoll(use: Channel => Unit): Unit = {
    val loops = EventLoops.group(1, "congestion")
    connected(loops, EventLoops.serverChannel, EventLoops.clientChannel)(use)
  }

  private def nio(use: Channel => Unit): Unit =
    connected(
      NettyUtils.createEventLoop(IOMode.NIO, 1, "congestion"),
      classOf[NioServerSocketChannel],
      classOf[NioSocketChannel]
    )(use)

  test("auto leaves pacing out within a host alone; a name is taken everywhere") {
    assert(Congestion.choose("auto", sameHost = true, Some("bbr")).contains("reno"))
    assert(Congestion.choose("auto", sameHost = true, Some("bbr2")).contains("reno"))
    assert(Congestion.choose("auto", sameHost = false, Some("bbr")).isEmpty)
    assert(Congestion.choose("auto", sameHost = true, Some("cubic")).isEmpty)
    assert(Congestion.choose("auto", sameHost = true, None).isEmpty)
    assert(Congestion.choose("system", sameHost = true, Some("bbr")).isEmpty)
    assert(Congestion.choose("dctcp", sameHost = false, Some("bbr")).contains("dctcp"))
    assert(Congestion.choose("bbr", sameHost = false, Some("bbr")).isEmpty)
    assert(Settings.resolve(Map.empty, Seq(Congestion.key))(Congestion.key) == "auto")
    for (wrong <- Seq("", "BBR", "no such", "x" * 16))
      assertThrows[ConfigurationException](Settings.resolve(Map("congestion" -> wrong), Seq(Congestion.key)))
  }

  test("a socket of native epoll is set to it, and says so") {
    epoll { channel =>
      val before = Congestion.of(channel)
      assert(before.exists(_.nonEmpty), "tests run on Linux")
      assert(Congestion.choose(Seq(channel), "system", sameHost = true) == before.toSeq)
      assert(Congestion.choose(Seq(channel), "reno", sameHost = false) == Seq("reno"))
      assert(Congestion.of(channel).contains("reno"))
      val unknown = intercept[ConfigurationException](Congestion.choose(Seq(channel), "nosuch", sameHost = true))
      assert(unknown.getMessage.startsWith("congestion is 'nosuch'") && unknown.getMessage.contains("tcp_allowed"))
      assert(Congestion.of(channel).contains("reno"))
    }
  }

  test("a socket that cannot be set stays as it is with auto, and is refused a name") {
    nio { channel =>
      assert(Congestion.choose(Seq(channel), "auto", sameHost = true).isEmpty)
      val refused = intercept[ConfigurationException](Congestion.choose(Seq(channel), "reno", sameHost = true))
      assert(refused.getMessage.contains("NioSocketChannel could not be set to it"))
    }
  }

  test("header and payload leave in one write, whatever the payload's length") {
    epoll(channel => assert(GatheringWrites.lift(channel)))
    nio(channel => assert(GatheringWrites.lift(channel)))
  }
}
