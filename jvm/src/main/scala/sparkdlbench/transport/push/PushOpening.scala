package sparkdlbench.transport
package push

import sparkdlbench.common.RunFailedException
import sparkdlbench.transport.push.PushTransport._
import sparkdlbench.vector.{VectorFile, VectorPart}

import java.nio.ByteBuffer
import scala.collection.mutable

/**
 * The collective that opens lanes: every receiver makes its inboxes and tells its senders; a sender returns only after all
 * its receivers have told. Between executors that may share memory a mapped file is agreed on in the same exchange: the
 * receiver makes it and offers it (Ready), the sender maps it, reads the receiver's nonce and answers in the memory itself
 * (Attached), the receiver looks for the answer (Verdict) and removes the file's name. Whatever fails there leads to sockets,
 * unless `host_local` is `on`. Vectors that lie in mapped files are offered along with it: the receiver's, to which its sender
 * then writes, and the sender's, in which the receiver then reads; a rank that cannot map them uses the lanes' slots.
 */
final class PushOpening(
    group: GroupContext,
    network: PushNetwork,
    mailbox: Mailbox,
    peers: IndexedSeq[PushPeer],
    links: PushLinks,
    waiting: PushWait,
    vectors: MappedVectors,
    generation: Int
) {
  private val self = peers(group.rank)
  private val mode = network.hostLocal(group.settings)

  def open(
      lanes: Seq[Lane],
      destination: Lane => Option[ByteBuffer],
      part: Lane => Option[VectorPart]
  ): (Seq[Arrival], Seq[Route]) = {
    val sources = lanes.filter(_.to == group.rank).groupBy(_.from)
    val targets = lanes.filter(_.from == group.rank).groupBy(_.to)
    links.connect(sources.keySet ++ targets.keySet)
    val offers = mutable.Map.empty[Int, Offered]
    try {
      sources.foreach { case (source, incoming) => announce(source, incoming, destination, part, offers) }
      val attached = targets.map { case (target, outgoing) => target -> attach(target, outgoing, part) }
      val arrivals = sources.toSeq.flatMap { case (source, incoming) => judge(source, incoming, destination, offers) }
      val routes = targets.toSeq.flatMap { case (target, outgoing) => route(target, outgoing, attached(target), part) }
      (arrivals, routes)
    } finally {
      offers.values.foreach(_.segment.unlink())
      filesOf(lanes.filter(lane => lane.from == group.rank || lane.to == group.rank), part)
        .foreach(_.release())
    }
  }

  private def filesOf(lanes: Seq[Lane], part: Lane => Option[VectorPart]): Seq[VectorFile] =
    lanes.flatMap(part(_)).flatMap(_.file).distinct

  private def offersOf(files: Seq[VectorFile]): Seq[VectorOffer] =
    files.map(file => VectorOffer(file.path, file.bytes, file.identity))

  /** By lane, the place of its part in one of `files`. */
  private def tellPlaces(slots: Seq[LaneSlots], files: Seq[VectorFile], part: Lane => Option[VectorPart])(
      tell: (LaneSlots, VectorPlace) => Unit
  ): Unit =
    for (each <- slots; found <- part(each.lane); file <- found.file)
      tell(each, VectorPlace(files.indexOf(file), found.offset))

  /** What the other end's files hold at a place, for messages of a lane. */
  private def seen(place: VectorPlace, files: IndexedSeq[Option[ByteBuffer]], lane: Lane): Option[ByteBuffer] =
    files
      .lift(place.file)
      .flatten
      .filter(memory => place.offset >= 0 && place.offset.toLong + lane.capacity <= memory.capacity)
      .map(_.slice(place.offset, lane.capacity))

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
      part: Lane => Option[VectorPart],
      offers: mutable.Map[Int, Offered]
  ): Unit = {
    val segment =
      if (mayShare(source)) HostLocalSegment.create(network.sharedDirectories, HostLocalSegment.bytes(lanes)) else None
    val files = filesOf(lanes, part)
    segment match {
      case Some(made) =>
        val slots = made.slots(lanes, destination)
        tellPlaces(slots, files, part)(_.tellDestination(_))
        offers(source) = new Offered(made, slots)
      case None if mode == "on" && mayShare(source) => cannotShare(source, "no folder can hold the mapped file")
      case None => lanes.foreach(lane => mailbox.register(LaneSlots.allocate(lane, destination(lane))))
    }
    links.tell(source, Control.Ready(generation, segment.map(_.offer), offersOf(files)))
  }

  /**
   * Waits until rank `target` is ready for our lanes; maps what it offers. None: nothing was offered; Some(None): it cannot
   * be mapped.
   */
  private def attach(
      target: Int,
      lanes: Seq[Lane],
      part: Lane => Option[VectorPart]
  ): Option[Option[Seq[LaneSlots]]] = {
    val ready = await(target, "open") { case word @ Control.Ready(`generation`, _, _) => word }
    ready.offer.map { offer =>
      val segment = if (mayShare(target)) HostLocalSegment.attach(offer) else None
      val files = filesOf(lanes, part)
      val slots = segment.map(_.slots(lanes, _ => None))
      slots.foreach { each =>
        val there = ready.vectors.map(vectors.map).toIndexedSeq
        for (one <- each; place <- one.destinationPlace) seen(place, there, one.lane).foreach(one.writeTo)
        tellPlaces(each, files, part)(_.tellSource(_))
      }
      segment.foreach(_.answer())
      links.tell(target, Control.Attached(generation, segment.isDefined, offersOf(files)))
      slots
    }
  }

  private def judge(
      source: Int,
      lanes: Seq[Lane],
      destination: Lane => Option[ByteBuffer],
      offers: mutable.Map[Int, Offered]
  ): Seq[Arrival] = offers.get(source) match {
    case None => lanes.map(lane => new Arrival(mailbox.slots(lane.id).get, polled = false))
    case Some(offered) =>
      val word = await(source, "share memory") { case word @ Control.Attached(`generation`, _, _) => word }
      val shared = word.attached && offered.segment.isAnswered
      offered.segment.unlink()
      if (shared) readThere(offered.slots, word.vectors.map(vectors.map).toIndexedSeq)
      if (!shared && mode == "on") cannotShare(source, "the mapped file is not the same memory on both ends")
      val slots =
        if (shared) offered.slots
        else lanes.map(lane => LaneSlots.allocate(lane, destination(lane)))
      slots.foreach(mailbox.register)
      links.tell(source, Control.Verdict(generation, shared))
      slots.map(new Arrival(_, polled = shared))
  }

  private def readThere(slots: Seq[LaneSlots], files: IndexedSeq[Option[ByteBuffer]]): Unit =
    for (each <- slots; place <- each.sourcePlace) seen(place, files, each.lane) match {
      case Some(view) => each.readFrom(view)
      case None => each.refuseSource()
    }

  /** Whoever was offered memory waits for the verdict: before it the target has no other place for our lanes either. */
  private def route(
      target: Int,
      lanes: Seq[Lane],
      offered: Option[Option[Seq[LaneSlots]]],
      part: Lane => Option[VectorPart]
  ): Seq[Route] = {
    val shared = offered.flatMap { slots =>
      val verdict = await(target, "share memory") { case word @ Control.Verdict(`generation`, _) => word }
      slots.filter(_ => verdict.shared)
    }
    if (links.isHere(target)) {
      val there = Mailbox.find(peers(target).inbox, target)
      lanes.map { lane =>
        there.flatMap(_.slots(lane.id)) match {
          case Some(slots) =>
            val lies = part(lane).map(_.bytes)
            lies.foreach(slots.readFrom)
            new Route(lane, InProcess, slots, there.get, null, lies.orNull)
          case None => new Route(lane, InProcess, null, null, Departed)
        }
      }
    } else
      shared match {
        case Some(slots) =>
          slots.map { each =>
            val lies = if (each.sourcePlace.isDefined) part(each.lane).map(_.bytes) else None
            new Route(each.lane, HostLocalMemory, each, null, null, lies.orNull)
          }
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

/** A mapped file that was offered to the sender of lanes, and these in it. */
private final class Offered(val segment: HostLocalSegment, val slots: Seq[LaneSlots])
