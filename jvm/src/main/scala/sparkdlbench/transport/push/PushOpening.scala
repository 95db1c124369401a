package sparkdlbench.transport
package push

import sparkdlbench.common.RunFailedException
import sparkdlbench.transport.push.PushTransport._

import java.nio.ByteBuffer
import scala.collection.mutable

/**
 * The collective that opens lanes: every receiver makes its inboxes and tells its senders; a sender returns only after all
 * its receivers have told. Between executors that may share memory a mapped file is agreed on in the same exchange: the
 * receiver makes it and offers it (Ready), the sender maps it, reads the receiver's nonce and answers in the memory itself
 * (Attached), the receiver looks for the answer (Verdict) and removes the file's name. Whatever fails there leads to sockets,
 * unless `host_local` is `on`.
 */
final class PushOpening(
    group: GroupContext,
    network: PushNetwork,
    mailbox: Mailbox,
    peers: IndexedSeq[PushPeer],
    links: PushLinks,
    waiting: PushWait,
    generation: Int
) {
  private val self = peers(group.rank)
  private val mode = network.hostLocal(group.settings)

  def open(lanes: Seq[Lane], destination: Lane => Option[ByteBuffer]): (Seq[Arrival], Seq[Route]) = {
    val sources = lanes.filter(_.to == group.rank).groupBy(_.from)
    val targets = lanes.filter(_.from == group.rank).groupBy(_.to)
    links.connect(sources.keySet ++ targets.keySet)
    val offers = mutable.Map.empty[Int, HostLocalSegment]
    try {
      sources.foreach { case (source, incoming) => announce(source, incoming, destination, offers) }
      val attached = targets.map { case (target, outgoing) => target -> attach(target) }
      val arrivals = sources.toSeq.flatMap { case (source, incoming) => judge(source, incoming, destination, offers) }
      val routes = targets.toSeq.flatMap { case (target, outgoing) => route(target, outgoing, attached(target)) }
      (arrivals, routes)
    } finally offers.values.foreach(_.unlink())
  }

  private def mayShare(peer: Int): Boolean = {
    val other = peers(peer)
    val sameKernel = !links.isHere(peer) && other.kernel == self.kernel
    mode match {
      case "on" => sameKernel
      case "auto" => sameKernel && other.host == self.host && !other.encrypted && !self.encrypted
      case _ => false
    }
  }

  private def announce(
      source: Int,
      lanes: Seq[Lane],
      destination: Lane => Option[ByteBuffer],
      offers: mutable.Map[Int, HostLocalSegment]
  ): Unit = {
    val segment =
      if (mayShare(source)) HostLocalSegment.create(network.sharedDirectories, HostLocalSegment.bytes(lanes)) else None
    segment match {
      case Some(made) => offers(source) = made
      case None if mode == "on" && mayShare(source) => cannotShare(source, "no folder can hold the mapped file")
      case None => lanes.foreach(lane => mailbox.register(LaneSlots.allocate(lane, destination(lane))))
    }
    links.tell(source, Control.Ready(generation, segment.map(_.offer)))
  }

  /**
   * Waits until rank `target` is ready for our lanes; maps what it offers. None: nothing was offered; Some(None): it cannot
   * be mapped.
   */
  private def attach(target: Int): Option[Option[HostLocalSegment]] = {
    val ready = await(target, "open") { case word @ Control.Ready(`generation`, _) => word }
    ready.offer.map { offer =>
      val segment = if (mayShare(target)) HostLocalSegment.attach(offer) else None
      segment.foreach(_.answer())
      links.tell(target, Control.Attached(generation, segment.isDefined))
      segment
    }
  }

  private def judge(
      source: Int,
      lanes: Seq[Lane],
      destination: Lane => Option[ByteBuffer],
      offers: mutable.Map[Int, HostLocalSegment]
  ): Seq[Arrival] = offers.get(source) match {
    case None => lanes.map(lane => new Arrival(mailbox.slots(lane.id).get, polled = false))
    case Some(segment) =>
      val word = await(source, "share memory") { case word @ Control.Attached(`generation`, _) => word }
      val shared = word.attached && segment.isAnswered
      segment.unlink()
      if (!shared && mode == "on") cannotShare(source, "the mapped file is not the same memory on both ends")
      val slots =
        if (shared) segment.slots(lanes, destination)
        else lanes.map(lane => LaneSlots.allocate(lane, destination(lane)))
      slots.foreach(mailbox.register)
      links.tell(source, Control.Verdict(generation, shared))
      slots.map(new Arrival(_, polled = shared))
  }

  /** Whoever was offered memory waits for the verdict: before it the target has no other place for our lanes either. */
  private def route(target: Int, lanes: Seq[Lane], offered: Option[Option[HostLocalSegment]]): Seq[Route] = {
    val shared = offered.flatMap { segment =>
      val verdict = await(target, "share memory") { case word @ Control.Verdict(`generation`, _) => word }
      segment.filter(_ => verdict.shared)
    }
    if (links.isHere(target)) {
      val there = Mailbox.find(peers(target).inbox, target)
      lanes.map { lane =>
        there.flatMap(_.slots(lane.id)) match {
          case Some(slots) => new Route(lane, InProcess, slots, there.get, null)
          case None => new Route(lane, InProcess, null, null, Departed)
        }
      }
    } else
      shared match {
        case Some(memory) =>
          memory.slots(lanes, _ => None).map(slots => new Route(slots.lane, HostLocalMemory, slots, null, null))
        case None => lanes.map(lane => new Route(lane, Socket, null, null, links.channel(target)))
      }
  }

  private def await[C <: Control](peer: Int, phase: String)(expected: PartialFunction[Control, C]): C = {
    waiting.until(peers(peer), polled = false, phase)(() => mailbox.has(peer)(expected))
    mailbox.take(peer)(expected).get
  }

  private def cannotShare(peer: Int, why: String): Nothing = throw new RunFailedException(
    s"host_local is 'on', but $self and ${peers(peer)} run on one host and cannot share memory: $why (tried " +
      s"${network.sharedDirectories.mkString(", ")}). Mount one of these folders in both containers, or set spark.sparkdl.hostLocal=auto."
  )
}
