package sparkdlbench.transport.ucx

import sparkdlbench.config.{Key, Settings}
import sparkdlbench.transport.push.{LaneSlots, PushTransport}
import sparkdlbench.transport.{
  GroupContext,
  OneStageTransport,
  RankGroups,
  RankPlacement,
  RunSecret,
  Transport,
  TransportVariant
}

/**
 * Messages by UCX (jucx), which chooses among RDMA, shared memory and TCP what a pair of hosts has; with everything else as in
 * `tcp`. A message is a UCX active message whose header is its tag: stream, lane and sequence number. Small ones are copied once
 * into the receiver's slot, large ones go straight from the sender's direct memory into the receiver's, by UCX's rendezvous.
 *
 *   - Purpose: RDMA and shared memory where hosts have them, without a network library of ours
 *   - Messages to the driver: two `allGather`s an attempt, none a step
 *   - Bytes: those of the topology; framing 24 bytes a message
 *   - Needs: the jar of jucx and the UCX libraries (`sparkdl-bench jars fetch --ucx`)
 *   - Not for: sessions that encrypt: UCX cannot
 *   - Source: Shamis et al., "UCX: An Open Source Framework for HPC Network APIs and Beyond", HOTI 2015
 */
final class Ucx extends TransportVariant with OneStageTransport {
  def name = "ucx"
  def doc =
    "UCX between the ranks: RDMA, shared memory or TCP, whatever the hosts have (ucx.tls); HMAC handshake; jucx and UCX by `sparkdl-bench jars fetch --ucx`"
  def inBand = false
  override def keys: Seq[Key[_]] = Seq(Ucx.tls, Ucx.devices, Ucx.libraries, RankGroups.inMemoryFirst)

  override def inboxBytes(capacity: Long, destination: Boolean): Long =
    LaneSlots.bytes(if (destination) 0 else capacity) + LaneSlots.Alignment

  override def inTheClear(settings: Settings): Option[String] = Some("UCX has no encryption")

  override def newSecret(settings: Settings): RunSecret = RunSecret.proving(name)

  override def checkHere(settings: Settings, around: RankPlacement): Unit =
    UcxLibraries.load(settings(Ucx.libraries)): Unit

  override def connect(group: GroupContext): Transport = {
    val settings = group.settings
    val libraries = UcxLibraries.load(settings(Ucx.libraries)) // before any class that names jucx is used
    PushTransport.connect(group, new UcxNetwork(group, settings(Ucx.tls), settings(Ucx.devices), libraries))
  }
}

object Ucx {
  val tls: Key[String] = Key.text(
    "ucx.tls",
    "all",
    "UCX's transports to choose from, in its own words (UCX_TLS): all, or a list such as tcp,self or posix,sysv,cma,self or rc,self"
  )
  val devices: Key[String] = Key.text(
    "ucx.devices",
    "all",
    "Network devices that UCX may use (UCX_NET_DEVICES): all, or a list such as eth0 or mlx5_0:1"
  )
  val libraries: Key[String] = Key.text(
    "ucx.libraries",
    "",
    "Folder with the hosts' own UCX libraries (libucp.so.0, …), which RDMA needs; empty: those of the jar that `sparkdl-bench jars fetch --ucx` brings"
  )
}
