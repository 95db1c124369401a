package sparkdlbench.transport
package push

import sparkdlbench.common.{ConfigurationException, RunFailedException}
import sparkdlbench.transport.push.PushTransport._

import sparkdlbench.vector.VectorPart

import java.io.IOException
import java.nio.ByteBuffer
import java.util.function.BooleanSupplier
import scala.collection.mutable

/**
 * One rank's end of a transport that pushes frames into the peers' mailboxes. Which way a lane takes (process, mapped file,
 * socket) is decided when it is opened.
 */
final class PushTransport(
    group: GroupContext,
    network: PushNetwork,
    mailbox: Mailbox,
    peers: IndexedSeq[PushPeer]
) extends Transport {
  private val self = peers(group.rank)
  private val waiting = new PushWait(mailbox, group, self, peers.count(_.kernel == self.kernel))
  private val links = new PushLinks(group, network, mailbox, peers, waiting)
  private val outgoing = mutable.LongMap.empty[Route]
  private val incoming = mutable.LongMap.empty[Arrival]
  private var generation = 0
  private var opened = 0
  private val payload = Array.fill(3)(0L)
  private val vectors = new MappedVectors
  private var inPlace = Array.empty[Route]
  private val names = IndexedSeq(network.channel, "host-local", "in-process")

  override def rank: Int = group.rank
  override def size: Int = group.size
  override val groups: RankGroups = RankGroups.chosen(group.settings, peers.map(_.process))

  override def lanesOpened: Int = opened

  override def open(
      lanes: Seq[Lane],
      destination: Lane => Option[ByteBuffer],
      part: Lane => Option[VectorPart]
  ): Unit = {
    generation += 1
    opened = lanes.foldLeft(opened)((next, lane) => math.max(next, lane.id + 1))
    lanes
      .filter(lane => lane.from == lane.to)
      .foreach(lane => throw new IllegalArgumentException(s"$lane starts where it ends"))
    val opening = new PushOpening(group, network, mailbox, peers, links, waiting, vectors, generation)
    val (arrivals, routes) = opening.open(lanes, destination, part)
    arrivals.foreach(arrival => incoming.update(arrival.slots.lane.id, arrival))
    routes.foreach(route => outgoing.update(route.lane.id, route))
    inPlace ++= routes.filter(_.lies != null)
  }

  override def redirect(lane: Lane, destination: ByteBuffer): Boolean = {
    arrivalOf(lane).slots.redirect(destination)
    true
  }

  override def send(lane: Lane, sequence: Long, data: ByteBuffer): Unit = {
    waiting.failIfBroken()
    val route = outgoing.getOrNull(lane.id)
    if (route == null) unknown(lane, "starts")
    val bytes = data.remaining
    if (route.slots == null) pushTo(route, sequence, data)
    else {
      if (route.lies eq data) {
        route.slots.publishInPlace(sequence, bytes)
        route.readUntil = sequence
      } else {
        route.slots.claim(sequence, bytes).put(data.duplicate())
        route.slots.publish(sequence, bytes)
      }
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
          s"$self could not send ${words(route.lane, sequence)} to ${peers(route.lane.to)}: ${cause.getMessage}",
          cause
        )
    }

  override def flush(): Unit = links.flush()

  override def awaitReads(): Unit = {
    var index = 0
    while (index < inPlace.length) {
      val route = inPlace(index)
      if (!route.isRead) awaitRead(route)
      index += 1
    }
  }

  private def awaitRead(route: Route): Unit = {
    val to = route.lane.to
    waiting.until(peers(to), polled = true, s"wait for the reader of ${words(route.lane, route.readUntil)}")(() =>
      route.isRead || mailbox.hasLeft(to)
    )
  }

  override def receive(lane: Lane, sequence: Long): ByteBuffer = {
    val arrival = arrivalOf(lane)
    val slots = arrival.slots
    if (!slots.hasArrived(sequence)) {
      val ready: BooleanSupplier = () => slots.hasArrived(sequence)
      waiting.until(peers(lane.from), arrival.polled, s"receive ${words(lane, sequence)}")(ready)
    }
    slots.view(sequence)
  }

  override def hasArrived(lane: Lane, sequence: Long): Boolean = {
    mailbox.poll()
    waiting.failIfBroken()
    arrivalOf(lane).slots.hasArrived(sequence)
  }

  override def hasLeft(peer: Int): Boolean = mailbox.hasLeft(peer)

  override def awaitAny(messages: IndexedSeq[(Lane, Long)]): Unit = {
    val awaited = messages.map { case (lane, sequence) => (arrivalOf(lane), sequence) }
    val ready: BooleanSupplier = () => awaited.exists { case (arrival, sequence) => arrival.slots.hasArrived(sequence) }
    val senders = messages.map { case (lane, _) => lane.from }.distinct.map(peers)
    waiting.untilAny(senders, awaited.exists(_._1.polled), s"receive ${anyOf(messages)}")(ready)
  }

  private def arrivalOf(lane: Lane): Arrival = {
    val arrival = incoming.getOrNull(lane.id)
    if (arrival == null) unknown(lane, "ends")
    arrival
  }

  override def release(lane: Lane, sequence: Long): Unit = arrivalOf(lane).slots.release(sequence)

  override def bytesSent: Map[String, Long] = {
    val payloads = names.indices.map(channel => names(channel) -> payload(channel)).filter(_._2 > 0).toMap
    val framing = links.framingBytes
    if (framing > 0) payloads.updated(network.channel + ".framing", framing) else payloads
  }

  override def facts: Map[String, String] = network.facts ++ throughMemory ++
    Seq("congestion" -> links.congestionControl, "cipher" -> links.ciphers).collect {
      case (what, each) if each.nonEmpty => s"${network.channel}.$what" -> each.mkString(", ")
    }

  /** Of the lanes that go through mapped memory, how many need no slot. */
  private def throughMemory: Map[String, String] = {
    val routes = outgoing.values.filter(_.channel == HostLocalMemory)
    val direct = routes.count(route => route.lies != null || route.slots.goesToDestination)
    if (routes.isEmpty) Map.empty else Map(InPlaceFact -> s"$direct of ${routes.size} lanes")
  }

  override def close(): Unit =
    try links.close()
    finally
      try mailbox.close()
      finally network.close()

  private def unknown(lane: Lane, what: String): Nothing =
    throw new RunFailedException(s"Rank $rank was asked for $lane, which was not opened or $what at another rank.")
}

object PushTransport {
  val Socket = 0
  val HostLocalMemory = 1
  val InProcess = 2
  private val MostNamed = 4

  /** Name of a fact: how many lanes through mapped memory lead from vector to vector. */
  val InPlaceFact = "host-local.in_place"

  /** What a message carries, and which it is; for error messages. */
  private[transport] def words(lane: Lane, sequence: Long): String =
    s"${lane.purpose} (message $sequence of lane ${lane.id})"

  /** The same for a wait for any of several, of which a group of many ranks has too many to name them all. */
  private[transport] def anyOf(messages: Seq[(Lane, Long)]): String = {
    val named = messages.take(MostNamed).map { case (lane, sequence) => words(lane, sequence) }.mkString(", ")
    val more = messages.size - MostNamed
    if (messages.size == 1) named
    else s"any of ${messages.size} messages: $named" + (if (more > 0) s" and $more more" else "")
  }

  /** Connects a rank to its group; a collective call. Closing the transport, or failing here, closes `network`. */
  def connect(group: GroupContext, network: PushNetwork): Transport =
    try {
      if (group.size > StreamId.MaxFrom)
        throw new ConfigurationException(
          s"${network.channel} carries at most ${StreamId.MaxFrom} ranks, not ${group.size}."
        )
      val inbox = StreamId.inboxNumber(group.attemptId)
      val mailbox =
        Mailbox.open(inbox, group.rank, network.cipher(group.settings)) // before anybody can know our address
      try {
        val self = network.describe(group.rank).copy(inbox = mailbox.inbox)
        val peers = group.allGather(PushPeer.print(self)).map(PushPeer.parse)
        if (peers.exists(_.process != self.process))
          network.obstacle.foreach(text => throw new ConfigurationException(text))
        Progress
          .choose(network, network.progress(group.settings), peers.count(_.kernel == self.kernel))
          .foreach(mailbox.serveBy)
        new PushTransport(group, network, mailbox, peers)
      } catch { case error: Throwable => mailbox.close(); throw error }
    } catch { case error: Throwable => network.close(); throw error }

  /**
   * Which way a lane's messages leave: through `slots` (then `wakes` is the receiver's mailbox, if it is in this process), or
   * through `push`.
   *
   * @param lies
   *   the memory of messages that the receiver reads where they lie
   */
  final class Route(
      val lane: Lane,
      val channel: Int,
      val slots: LaneSlots,
      val wakes: Mailbox,
      val push: PushChannel,
      val lies: ByteBuffer = null
  ) {

    /** The newest message that the receiver reads where it lies. */
    var readUntil: Long = -1

    def isRead: Boolean = slots.isReleased(readUntil)
  }

  /** Where a lane's messages arrive; `polled`: by another process' writes. */
  final class Arrival(val slots: LaneSlots, val polled: Boolean)
}
