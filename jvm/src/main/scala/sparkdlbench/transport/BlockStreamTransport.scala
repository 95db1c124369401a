package sparkdlbench.transport

import sparkdlbench.RunFailedException
import sparkdlbench.transport.BlockStreamTransport._

import java.io.IOException
import java.nio.ByteBuffer
import java.util.function.BooleanSupplier
import scala.collection.mutable

/** One rank's end of `block-stream`. Which way a lane takes (process, mapped file, socket) is decided when it is opened. */
final class BlockStreamTransport(
    group: GroupContext,
    network: BlockStreamNetwork,
    mailbox: Mailbox,
    peers: IndexedSeq[BlockStreamPeer]
) extends Transport {
  private val self = peers(group.rank)
  private val waiting = new BlockStreamWait(mailbox, group, self, peers.count(_.kernel == self.kernel))
  private val links = new BlockStreamLinks(group, network, mailbox, peers, waiting)
  private val outgoing = mutable.LongMap.empty[Route]
  private val incoming = mutable.LongMap.empty[Arrival]
  private var generation = 0
  private val payload = Array.fill(Channels.length)(0L)

  override def rank: Int = group.rank
  override def size: Int = group.size
  override val groups: RankGroups = RankGroups.chosen(group.settings, peers.map(_.process))

  override def open(lanes: Seq[Lane], destination: Lane => Option[ByteBuffer]): Unit = {
    generation += 1
    lanes
      .filter(lane => lane.from == lane.to)
      .foreach(lane => throw new IllegalArgumentException(s"$lane starts where it ends"))
    val opening = new BlockStreamOpening(group, network, mailbox, peers, links, waiting, generation)
    val (arrivals, routes) = opening.open(lanes, destination)
    arrivals.foreach(arrival => incoming.update(arrival.slots.lane.id, arrival))
    routes.foreach(route => outgoing.update(route.lane.id, route))
  }

  override def send(lane: Lane, sequence: Long, data: ByteBuffer): Unit = {
    waiting.failIfBroken()
    val route = outgoing.getOrNull(lane.id)
    if (route == null) unknown(lane, "starts")
    val bytes = data.remaining
    if (route.slots == null) pushTo(route, sequence, data)
    else {
      route.slots.claim(sequence, bytes).put(data.duplicate())
      route.slots.publish(sequence, bytes)
      if (route.wakes != null) route.wakes.wakeUp()
    }
    payload(route.channel) += bytes
  }

  private def pushTo(route: Route, sequence: Long, data: ByteBuffer): Unit =
    try route.push.push(route.lane.id, sequence, data)
    catch {
      case cause: IOException =>
        waiting.failIfBroken()
        throw new RunFailedException(
          s"$self could not send message $sequence of lane ${route.lane.id} to ${peers(route.lane.to)}: ${cause.getMessage}",
          cause
        )
    }

  override def flush(): Unit = links.flush()

  override def receive(lane: Lane, sequence: Long): ByteBuffer = {
    val arrival = incoming.getOrNull(lane.id)
    if (arrival == null) unknown(lane, "ends")
    val slots = arrival.slots
    if (!slots.hasArrived(sequence)) {
      val ready: BooleanSupplier = () => slots.hasArrived(sequence)
      waiting.until(peers(lane.from), arrival.polled, s"receive message $sequence of lane ${lane.id}")(ready)
    }
    slots.view(sequence)
  }

  override def release(lane: Lane, sequence: Long): Unit = incoming.getOrNull(lane.id).slots.release(sequence)

  override def bytesSent: Map[String, Long] = {
    val payloads = Channels.indices.map(channel => Channels(channel) -> payload(channel)).filter(_._2 > 0).toMap
    val framing = links.framingBytes
    if (framing > 0) payloads.updated(Channels(Socket) + ".framing", framing) else payloads
  }

  override def close(): Unit =
    try links.close()
    finally mailbox.close()

  private def unknown(lane: Lane, what: String): Nothing =
    throw new RunFailedException(s"Rank $rank was asked for $lane, which was not opened or $what at another rank.")
}

object BlockStreamTransport {
  val Socket = 0
  val HostLocalMemory = 1
  val InProcess = 2
  val Channels: IndexedSeq[String] = IndexedSeq("block-stream", "host-local", "in-process")

  /**
   * Which way a lane's messages leave: through `slots` (then `wakes` is the receiver's mailbox, if it is in this process), or
   * through `push`.
   */
  final class Route(
      val lane: Lane,
      val channel: Int,
      val slots: BlockStreamSlots,
      val wakes: Mailbox,
      val push: PushChannel
  )

  /** Where a lane's messages arrive; `polled`: by another process' writes. */
  final class Arrival(val slots: BlockStreamSlots, val polled: Boolean)
}
