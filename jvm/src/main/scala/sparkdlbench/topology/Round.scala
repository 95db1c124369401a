package sparkdlbench.topology

import sparkdlbench.common.RunFailedException
import sparkdlbench.transport.{Lane, Transport}
import sparkdlbench.vector.{FloatOps, VectorPart}

import java.nio.{ByteBuffer, ByteOrder, FloatBuffer}

/**
 * One rank's part of one round, or of several rounds in a row in which it receives nothing before the last: sends,
 * then receives.
 */
private[topology] final class Round(val sends: Array[Outgoing], val receives: Array[Incoming]) {

  def startSends(transport: Transport, sequence: Long, encode: Boolean): Unit = {
    var index = 0
    while (index < sends.length) {
      sends(index).start(transport, sequence, encode)
      index += 1
    }
  }

  /** Only those that leave the group, or only those that do not. */
  def startSends(transport: Transport, sequence: Long, encode: Boolean, withinGroup: Boolean): Unit = {
    var index = 0
    while (index < sends.length) {
      if (sends(index).withinGroup == withinGroup) sends(index).start(transport, sequence, encode)
      index += 1
    }
  }

  def awaitReceives(transport: Transport, sequence: Long): Unit = {
    var index = 0
    while (index < receives.length) {
      receives(index).await(transport, sequence)
      index += 1
    }
  }

  def releaseReceives(transport: Transport, sequence: Long): Unit = {
    var index = 0
    while (index < receives.length) {
      transport.release(receives(index).lane, sequence)
      index += 1
    }
  }

  /** Puts what arrived in the image into the vector. */
  def decodeReceives(): Unit = {
    var index = 0
    while (index < receives.length) {
      receives(index).decode()
      index += 1
    }
  }
}

/** Some slices of a bucket on their way out. */
private[topology] final class Outgoing(
    lane: Lane,
    wire: Wire,
    fromSlice: Int,
    untilSlice: Int,
    val withinGroup: Boolean
) {
  private val bytes: ByteBuffer = wire.bytes(fromSlice, untilSlice)

  /** Where all its messages lie; None where they are encodings. */
  def part: Option[VectorPart] = wire.part(fromSlice, bytes)

  /** @param encode false where the image already holds the slices */
  def start(transport: Transport, sequence: Long, encode: Boolean): Unit = {
    if (encode && !wire.codec.raw) {
      val written = wire.encode(fromSlice, untilSlice)
      if (!wire.codec.fixedSize) bytes.limit(written)
    }
    transport.send(lane, sequence, bytes)
  }
}

/** Some slices of a bucket on their way in. Keeps the views of the transport's two slots, so that a step makes none. */
private[topology] final class Incoming(val lane: Lane, val wire: Wire, val fromSlice: Int, val untilSlice: Int) {
  private val slots = new Array[ByteBuffer](2)
  private val slotBytes = new Array[ByteBuffer](2)
  private val slotFloats = new Array[FloatBuffer](2)
  private val slotPositions = new Array[Int](2)
  private var slot = 0

  /** The message that `await` waited for, position 0. */
  def bytes: ByteBuffer = slotBytes(slot)

  /** The same as values, position 0; of use with a raw codec. */
  def floats: FloatBuffer = slotFloats(slot)

  def await(transport: Transport, sequence: Long): Unit = {
    val message = transport.receive(lane, sequence)
    if (wire.codec.fixedSize && message.remaining != lane.capacity) failSize(message.remaining)
    slot = (sequence & 1).toInt
    val seen = (slots(slot) eq message) && slotPositions(slot) == message.position()
    if (!seen || slotBytes(slot).capacity != message.remaining) {
      slots(slot) = message
      slotPositions(slot) = message.position()
      slotBytes(slot) = message.slice().order(ByteOrder.nativeOrder())
      slotFloats(slot) = slotBytes(slot).asFloatBuffer()
    }
  }

  def decode(): Unit = if (!wire.codec.raw) wire.decode(fromSlice, untilSlice)

  private def failSize(bytes: Int): Nothing = throw new RunFailedException(
    s"Rank ${lane.from} sent $bytes bytes to rank ${lane.to} as ${lane.purpose}, where ${lane.capacity} were " +
      "expected. All ranks must run the same version with the same model, topology, codec and bucket length."
  )
}

/**
 * Sums what one round receives with this rank's own values, in the order of ranks, into this rank's own values. All
 * messages of the round hold the same slices.
 */
private[topology] final class Summation(rank: Int, round: Round, scratch: () => FloatBuffer) {
  private val first = round.receives.head
  private val wire = first.wire
  require(round.receives.forall(in => in.fromSlice == first.fromSlice && in.untilSlice == first.untilSlice))
  private val own: FloatBuffer = wire.floats(first.fromSlice, first.untilSlice)
  private val ownPlace = round.receives.count(_.lane.from < rank)
  private val parts = new Array[FloatBuffer](round.receives.length + 1)
  parts(ownPlace) = own
  // (a + b) + own: what comes before needs a place of its own; own + a is a + own.
  private val before: FloatBuffer = if (wire.codec.raw || ownPlace < 2) null else scratch().slice(0, own.capacity)

  def run(): Unit = if (wire.codec.raw) sumRaw() else sumEncoded()

  private def sumRaw(): Unit = {
    var index = 0
    while (index < round.receives.length) {
      parts(if (index < ownPlace) index else index + 1) = round.receives(index).floats
      index += 1
    }
    FloatOps.sumInto(own, parts)
  }

  private def sumEncoded(): Unit = {
    var index = 0
    if (ownPlace >= 2) {
      while (index < ownPlace) {
        wire.decodeTo(round.receives(index).bytes, first.fromSlice, first.untilSlice, before, add = index > 0)
        index += 1
      }
      FloatOps.addInto(own, before)
    }
    while (index < round.receives.length) {
      wire.decodeAdd(round.receives(index).bytes, first.fromSlice, first.untilSlice)
      index += 1
    }
  }
}
