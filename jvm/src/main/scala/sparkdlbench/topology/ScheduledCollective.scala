package sparkdlbench.topology

import sparkdlbench.codec.Fp32
import sparkdlbench.transport.{Lane, Transport}
import sparkdlbench.vector.{Buckets, FlatBuffer, Slices, VectorPart}

import java.nio.{ByteBuffer, ByteOrder, FloatBuffer}
import scala.collection.mutable

/**
 * One rank's collectives by a schedule. Everything that a step needs (lanes, views of buffers, images) is made here
 * once.
 *
 * Sums are made in place, in `gradient`. A slice that was sent is never changed in the same step, and one that arrives
 * from elsewhere is final, so raw values are sent from, and arrive in, the vectors themselves, even where both are one
 * buffer. Every message contains at least one value, and a finished value depends on the contributions of all ranks
 * that it is sent to: so no rank can be ahead of one that it sends to by more than a step, and a lane's message
 * `sequence` + 1 leaves only after message `sequence` was released. For the same reason a rank that has collected what it
 * waits for has been read by those that it sent its part of a sum to: they may read it where it lies.
 *
 * @param lender
 *   whose lanes and steps these are
 */
private[topology] final class ScheduledCollective(
    transport: Transport,
    schedule: Schedule,
    layout: Buckets,
    gradientCodec: WireCodec,
    parameterCodec: WireCodec,
    gradient: FlatBuffer,
    parameters: FlatBuffer,
    lender: Option[ScheduledCollective] = None
) extends Collective {
  private val rank = transport.rank
  private val encodes = schedule.encodesAt(rank)
  private val order: StepOrder = lender.fold(new StepOrder(layout.count))(_.order)
  val residual: Option[FlatBuffer] =
    if (gradientCodec.codec.keepsResidual && encodes) Some(new FlatBuffer(layout.length)) else None
  private val ownSlice: Int = schedule.ownedSlice(rank).getOrElse(-1)
  private val ranges = Array.tabulate(layout.count)(bucket => (layout.from(bucket), layout.until(bucket)))
  private val ownedRanges = Array.tabulate(layout.count)(ownedRange)
  private lazy val scratch: FloatBuffer = {
    val values = if (layout.count == 0) 0 else Slices(layout.size(0), schedule.slices).maxSize
    ByteBuffer.allocateDirect(values * 4).order(ByteOrder.nativeOrder()).asFloatBuffer()
  }
  private val firstLane: Int = lender.fold(transport.lanesOpened)(_.firstLane)
  private val lanes = mutable.ArrayBuffer.empty[Lane]
  private val destinations = mutable.Map.empty[Int, ByteBuffer]
  private val parts = mutable.Map.empty[Int, VectorPart]
  private val routes = Array.tabulate(layout.count)(route)
  private val arrivals = lanes.toVector.flatMap(lane => destinations.get(lane.id).map(lane -> _))
  if (lender.isEmpty)
    transport.open(lanes.toVector, lane => destinations.get(lane.id), lane => parts.get(lane.id))
  lanes.clear()
  destinations.clear()
  parts.clear()

  val roundsParameters: Boolean =
    !parameterCodec.codec.lossless && schedule.gather.exists(_.exists(!_.withinGroup))

  override def over(values: FlatBuffer): Option[Collective] =
    if (gradientCodec.raw && parameterCodec.raw && (gradient eq parameters) && values.length == layout.length)
      Some(
        new ScheduledCollective(
          transport,
          schedule,
          layout,
          gradientCodec,
          parameterCodec,
          values,
          values,
          Some(this)
        )
      )
    else None

  override def use(): Boolean = arrivals.forall { case (lane, place) => transport.redirect(lane, place) }

  def buckets: Int = layout.count
  def range(bucket: Int): (Int, Int) = ranges(bucket)
  def owned(bucket: Int): (Int, Int) = ownedRanges(bucket)

  def contribute(bucket: Int, sequence: Long): Unit = {
    order.enter(bucket, sequence, StepOrder.Contribute)
    val ownRounds = routes(bucket).reduce
    if (ownRounds.length > 0) ownRounds(0).startSends(transport, sequence, encode = true)
  }

  def reduce(bucket: Int, sequence: Long): Unit = {
    order.enter(bucket, sequence, StepOrder.Reduce)
    val route = routes(bucket)
    var index = 0
    while (index < route.reduce.length) {
      val round = route.reduce(index)
      if (round.receives.length > 0) {
        round.awaitReceives(transport, sequence)
        route.sums(index).run()
        round.releaseReceives(transport, sequence)
      }
      index += 1
      if (index < route.reduce.length) route.reduce(index).startSends(transport, sequence, encode = true)
    }
  }

  def publish(bucket: Int, sequence: Long): Unit = {
    order.enter(bucket, sequence, StepOrder.Publish)
    val route = routes(bucket)
    val rounds = ownSlice >= 0 && encodes && !parameterCodec.raw
    if (rounds) route.parameters.encode(ownSlice, ownSlice + 1)
    if (route.gather.length == 0) { if (rounds) route.parameters.decode(ownSlice, ownSlice + 1) }
    else {
      // Ranks of the group get the values as everybody sees them.
      route.gather(0).startSends(transport, sequence, encode = false, withinGroup = false)
      if (rounds) route.parameters.decode(ownSlice, ownSlice + 1)
      route.gather(0).startSends(transport, sequence, encode = false, withinGroup = true)
    }
  }

  def collect(bucket: Int, sequence: Long): Unit = {
    order.enter(bucket, sequence, StepOrder.Collect)
    val ownRounds = routes(bucket).gather
    var index = 0
    while (index < ownRounds.length) {
      val round = ownRounds(index)
      round.awaitReceives(transport, sequence)
      index += 1
      val next = if (index < ownRounds.length) ownRounds(index) else null
      if (next != null) next.startSends(transport, sequence, encode = false, withinGroup = false)
      round.decodeReceives()
      if (next != null) next.startSends(transport, sequence, encode = false, withinGroup = true)
      round.releaseReceives(transport, sequence)
    }
  }

  def flush(): Unit = {
    transport.flush()
    transport.awaitReads()
    order.flushed()
  }

  /** The same from run to run; asked for when residuals are restored. */
  def encoded: Seq[EncodedRange] = {
    val encoders = schedule.encoders
    for {
      bucket <- 0 until layout.count
      slices = Slices(layout.size(bucket), schedule.slices)
      slice <- 0 until schedule.slices if encoders(slice).contains(rank)
    } yield EncodedRange(
      layout.from(bucket) + slices.from(slice),
      layout.from(bucket) + slices.until(slice),
      encoders(slice)
    )
  }

  private def ownedRange(bucket: Int): (Int, Int) = {
    val from = layout.from(bucket)
    val slices = Slices(layout.size(bucket), schedule.slices)
    if (ownSlice < 0) (from, from) else (from + slices.from(ownSlice), from + slices.until(ownSlice))
  }

  private def route(bucket: Int): Route = {
    val slices = Slices(layout.size(bucket), schedule.slices)
    val from = layout.from(bucket)
    val parameterWire = new Wire(parameters, from, slices, parameterCodec, encodes, residual = None)
    val gradientWires = new Wires(
      new Wire(gradient, from, slices, gradientCodec, encodes, residual),
      new Wire(gradient, from, slices, ScheduledCollective.raw, travels = true, residual = None)
    )
    val parameterWires =
      new Wires(parameterWire, new Wire(parameters, from, slices, ScheduledCollective.raw, travels = true, None))
    val reduce = ownRounds(schedule.reduce, gradientWires, s"gradient of bucket $bucket", toImage = false)
    val gather = ownRounds(schedule.gather, parameterWires, s"parameters of bucket $bucket", toImage = true)
    val sums = reduce.map(round => if (round.receives.isEmpty) null else new Summation(rank, round, () => scratch))
    new Route(reduce, sums, gather, parameterWire)
  }

  /** Adds the lanes of every rank to the group's; returns this rank's ownRounds. */
  private def ownRounds(rounds: Seq[Seq[Hop]], wires: Wires, purpose: String, toImage: Boolean): Array[Round] = {
    val done = mutable.ArrayBuffer.empty[Round]
    val sends = mutable.ArrayBuffer.empty[Outgoing]
    rounds.foreach { round =>
      val receives = mutable.ArrayBuffer.empty[Incoming]
      round.filter(hop => wires.slices.from(hop.untilSlice) > wires.slices.from(hop.fromSlice)).foreach { hop =>
        val wire = wires.of(hop)
        val capacity = wire.offset(hop.untilSlice) - wire.offset(hop.fromSlice)
        val lane = Lane(firstLane + lanes.length, hop.from, hop.to, capacity, purpose)
        lanes += lane
        if (hop.from == rank) {
          sends += new Outgoing(lane, wire, hop.fromSlice, hop.untilSlice, hop.withinGroup)
          if (!toImage) sends.last.part.foreach(parts(lane.id) = _)
        }
        if (hop.to == rank) receives += new Incoming(lane, wire, hop.fromSlice, hop.untilSlice)
        if (hop.to == rank && toImage) {
          val place = wire.bytes(hop.fromSlice, hop.untilSlice)
          destinations(lane.id) = place
          wire.part(hop.fromSlice, place).foreach(parts(lane.id) = _)
        }
      }
      if (receives.nonEmpty) {
        done += new Round(sends.toArray, receives.sortBy(_.lane.from).toArray)
        sends.clear()
      }
    }
    if (sends.nonEmpty) done += new Round(sends.toArray, Array.empty)
    done.toArray
  }
}

/** The two ways in which one bucket of a vector travels. */
private[topology] final class Wires(betweenGroups: Wire, withinGroup: Wire) {
  def slices: Slices = betweenGroups.slices
  def of(hop: Hop): Wire = if (hop.withinGroup) withinGroup else betweenGroups
}

private[topology] object ScheduledCollective { val raw = new WireCodec(new Fp32) }

/** One rank's work on one bucket. `sums(i)` belongs to `reduce(i)`; null where that round receives nothing. */
private[topology] final class Route(
    val reduce: Array[Round],
    val sums: Array[Summation],
    val gather: Array[Round],
    val parameters: Wire
)
