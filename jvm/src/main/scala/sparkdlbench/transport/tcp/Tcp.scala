package sparkdlbench.transport.tcp

import org.apache.spark.sparkdlbench.ExecutorAddress
import sparkdlbench.config.{Key, Settings}
import sparkdlbench.transport.push.{Congestion, LaneSlots, Progress, PushTransport}
import sparkdlbench.transport.{
  GroupContext,
  OneStageTransport,
  RankGroups,
  RankPlacement,
  RunSecret,
  Transport,
  TransportVariant
}

import scala.util.Try

/**
 * Messages over TCP connections of our own: what a system beside Spark does, with everything else as in `block-stream`. Ranks of
 * one executor still exchange in memory; executors of one host over the loopback device, never through mapped memory.
 *
 *   - Purpose: the like-for-like out-of-band counterpart of `block-stream`; a NIC of one's own choice
 *   - Messages to the driver: two or three `allGather`s an attempt, none a step
 *   - Bytes: those of the topology; framing 16 bytes a message
 *   - Not for: clusters whose firewalls let only Spark's ports through
 */
final class Tcp extends TransportVariant with OneStageTransport {
  def name = "tcp"
  def doc =
    "TCP connections of our own between the ranks: Netty, native epoll where there is one, HMAC handshake, TLS by a setting"
  def inBand = false
  override def keys: Seq[Key[_]] =
    Seq(Tcp.interface, Tcp.ports, Tcp.connections, Tcp.tls, Progress.key, Congestion.key, RankGroups.inMemoryFirst)

  override def inboxBytes(capacity: Long, destination: Boolean): Long =
    LaneSlots.bytes(if (destination) 0 else capacity) + LaneSlots.Alignment

  override def inTheClear(settings: Settings): Option[String] =
    if (settings(Tcp.tls)) None else Some("set tcp.tls = true, which encrypts its connections")

  override def newSecret(settings: Settings): RunSecret = {
    val plain = RunSecret.proving(name)
    if (settings(Tcp.tls)) new RunSecret(plain.key, Some(TlsPair.newCertificate(plain.key))) else plain
  }

  override def checkHere(settings: Settings, around: RankPlacement): Unit = {
    val ports = settings(Tcp.ports)
    Interfaces
      .matching(settings(Tcp.interface), ExecutorAddress.here.host)
      .foreach(one => ports.check(one.address, around.ranksOnAHost))
  }

  override def connect(group: GroupContext): Transport = {
    val settings = group.settings
    val tls = if (settings(Tcp.tls)) Some(TlsPair.of(group.secret)) else None
    val network =
      new TcpNetwork(
        group,
        settings(Tcp.interface),
        settings(Tcp.ports),
        settings(Tcp.connections),
        tls
      )
    PushTransport.connect(group, network)
  }
}

object Tcp {
  val interface: Key[String] = Key(
    "tcp.interface",
    "auto",
    "auto, the name of an interface, an address, or a subnet such as 10.1.0.0/16",
    "Which of a host's addresses to use: auto (the fastest that every rank reaches), an interface's name, an address, or a subnet such as 10.1.0.0/16",
    choice => Some(choice).filter(Interfaces.isReadable)
  )
  val ports: Key[PortRange] = Key(
    "tcp.ports",
    "0",
    "0 for any free port, a port, or a range of ports such as 30000-30100",
    "Ports to listen on, one a rank: 0 for any free one, or a range such as 30000-30100",
    PortRange.parse(_)
  )
  val connections: Key[Int] = Key(
    "tcp.channels",
    "1",
    s"a whole number from 1 to ${Handshake.MaxConnections}",
    "Connections from each rank to each other",
    text => Try(text.toInt).toOption.filter(count => count >= 1 && count <= Handshake.MaxConnections)
  )
  val tls: Key[Boolean] = Key.flag("tcp.tls", "false", "Encrypt the connections (TLS 1.3, keyed by the run's secret)")
}
