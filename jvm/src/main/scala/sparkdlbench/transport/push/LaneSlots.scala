package sparkdlbench.transport
package push

import sparkdlbench.common.RunFailedException
import sparkdlbench.transport.push.LaneSlots._

import java.nio.{ByteBuffer, ByteOrder}

/**
 * The receiving end of one lane: two message slots and the counters by which writer and reader tell each other how far
 * they are. The memory is direct (another thread of this process writes: a network thread or another rank) or mapped
 * (another process writes); the protocol is the same:
 *   - the writer copies message `sequence` into slot `sequence % 2`, stores its length, then stores `published` = sequence + 1
 *   - the reader sees `published` > sequence, reads, then stores `released` = sequence + 1
 *
 * Where one end reaches the other's vector, a message needs no slot: the writer writes it to the reader's destination
 * (`writeTo`), or leaves it where it lies and the reader reads it there (`readFrom`). Its length's upper bits say so.
 *
 * @param memory
 *   64-byte aligned, `bytes(lane)` long, or only `HeaderBytes` long where messages go straight to `destination`
 * @param destination
 *   where every message of the lane is wanted, if anywhere
 */
final class LaneSlots(val lane: Lane, memory: ByteBuffer, destination: Option[ByteBuffer]) {
  private val words = memory.duplicate().order(ByteOrder.nativeOrder())
  private val inPlace = words.capacity() >= bytes(lane)
  require(inPlace || destination.isDefined, s"lane ${lane.id} has neither slots nor a destination")
  // Network threads look here.
  @volatile private var places = new Places(destination)
  // The writer's view of the destination, and the reader's of the writer's vector.
  private var destinationThere: ByteBuffer = _
  private var lyingThere: ByteBuffer = _
  private var goesThere = false
  private var toldDestination = 0L

  /** The views through which one destination is written and read. */
  private final class Places(destination: Option[ByteBuffer]) {
    val writerViews: Array[ByteBuffer] = Array.tabulate(2)(target)
    val readerViews: Array[ByteBuffer] = Array.tabulate(2)(target)
    val wanted: Option[ByteBuffer] = destination.map(_.duplicate().order(ByteOrder.nativeOrder()).clear())

    private def target(slot: Int): ByteBuffer =
      if (inPlace) words.slice(HeaderBytes + slot * stride(lane), lane.capacity).order(ByteOrder.nativeOrder())
      else { val whole = destination.get.duplicate().clear(); whole.slice().order(ByteOrder.nativeOrder()) }
  }

  /** Messages are wanted at `to` from the next one on, which has not begun to arrive. Reader's side. */
  def redirect(to: ByteBuffer): Unit = {
    require(places.wanted.isDefined, s"lane ${lane.id} has no destination")
    require(to.capacity >= lane.capacity, s"${to.capacity} bytes for messages of ${lane.capacity}")
    places = new Places(Some(to))
    if (toldDestination != 0)
      SharedWords.setVolatile(words, DestinationOffset, if (destination.exists(_ eq to)) toldDestination else 0)
  }

  /** The destination lies in a file that the writer may map, too. Reader's side. */
  def tellDestination(place: VectorPlace): Unit = {
    toldDestination = place.word
    SharedWords.setVolatile(words, DestinationOffset, toldDestination)
  }

  def destinationPlace: Option[VectorPlace] = VectorPlace.of(SharedWords.getAcquire(words, DestinationOffset))

  /** Messages go straight to the reader's destination, seen here as `view`. Writer's side. */
  def writeTo(view: ByteBuffer): Unit = destinationThere = view.duplicate().order(ByteOrder.nativeOrder())

  /** Whether they do so now. Writer's side. */
  def goesToDestination: Boolean =
    destinationThere != null && SharedWords.getAcquire(words, DestinationOffset) != 0

  /** All messages lie in a file that the reader may map, too. Writer's side. */
  def tellSource(place: VectorPlace): Unit = SharedWords.setVolatile(words, SourceOffset, place.word)

  /** None: there is none, or the reader cannot read it there. */
  def sourcePlace: Option[VectorPlace] = VectorPlace.of(SharedWords.getAcquire(words, SourceOffset))

  /** Messages may be left where they lie, seen here as `view`. */
  def readFrom(view: ByteBuffer): Unit = lyingThere = view.duplicate().order(ByteOrder.nativeOrder())

  /** Messages cannot be read where they lie. Reader's side. */
  def refuseSource(): Unit = SharedWords.setVolatile(words, SourceOffset, 0)

  /** Whether message `sequence` may be written already. Writer's side. */
  def isFree(sequence: Long): Boolean = sequence - SharedWords.getAcquire(words, ReleasedOffset) < 2

  /** Where to write message `sequence` of `length` bytes: position 0, limit `length`. Writer's side. */
  def claim(sequence: Long, length: Int): ByteBuffer = {
    val published = SharedWords.get(words, PublishedOffset)
    val released = SharedWords.getAcquire(words, ReleasedOffset)
    if (sequence != published) refuse(s"message $sequence came where message $published was due")
    if (sequence - released >= 2)
      refuse(s"message $sequence came while message $released was still being read (overrun)")
    goesThere = goesToDestination
    if (goesThere && !isReleased(sequence - 1))
      refuse(s"message $sequence came while message ${sequence - 1} was still being read (overrun)")
    val view = if (goesThere) destinationThere else places.writerViews((sequence & 1).toInt)
    if (length > view.capacity) refuse(s"message $sequence has $length bytes, over the lane's ${view.capacity}")
    view.clear().limit(length)
    view
  }

  /** Message `sequence`, which was claimed, is complete. Writer's side. */
  def publish(sequence: Long, length: Int): Unit = publish(sequence, length, if (goesThere) AtDestination else 0)

  /** Message `sequence` is complete where it lies, and stays so until it is released. Writer's side. */
  def publishInPlace(sequence: Long, length: Int): Unit = {
    val published = SharedWords.get(words, PublishedOffset)
    if (sequence != published) refuse(s"message $sequence came where message $published was due")
    if (!isReleased(sequence - 1)) refuse(s"message $sequence came while message ${sequence - 1} was still being read")
    publish(sequence, length, InPlace)
  }

  private def publish(sequence: Long, length: Int, how: Long): Unit = {
    SharedWords.set(words, LengthOffset + (sequence & 1).toInt * 8, length | how)
    SharedWords.setVolatile(words, PublishedOffset, sequence + 1)
  }

  /** Whether the reader has done with message `sequence`. Writer's side. */
  def isReleased(sequence: Long): Boolean = SharedWords.getAcquire(words, ReleasedOffset) > sequence

  def hasArrived(sequence: Long): Boolean = SharedWords.getAcquire(words, PublishedOffset) > sequence

  /** The bytes of message `sequence`, which must have arrived. Reader's side. */
  def view(sequence: Long): ByteBuffer = {
    val word = SharedWords.get(words, LengthOffset + (sequence & 1).toInt * 8)
    val (length, how) = (word.toInt, word & (AtDestination | InPlace))
    val now = places
    if (how == InPlace) lyingThere.clear().limit(length)
    else if (how == AtDestination) now.wanted.get.clear().limit(length)
    else inSlot(now, sequence, length)
  }

  private def inSlot(now: Places, sequence: Long, length: Int): ByteBuffer = {
    val slot = now.readerViews((sequence & 1).toInt)
    slot.clear().limit(length)
    if (inPlace && now.wanted.isDefined) copyTo(now.wanted.get, slot, length) else slot
  }

  private def copyTo(target: ByteBuffer, slot: ByteBuffer, length: Int): ByteBuffer = {
    if (length > target.capacity) refuse(s"a message has $length bytes, over its destination's ${target.capacity}")
    target.clear().put(slot).flip()
    target
  }

  def release(sequence: Long): Unit = SharedWords.setRelease(words, ReleasedOffset, sequence + 1)

  private def refuse(why: String): Nothing =
    throw new RunFailedException(
      s"Protocol error on lane ${lane.id} from rank ${lane.from} to rank ${lane.to}: $why. The ranks of this run disagree " +
        "about their exchange; this is a defect of the topology or of the transport: please report it with the run's configuration."
    )
}

/**
 * Where in the files that an end of lanes has offered something lies.
 *
 * @param file
 *   number of the file, from 0
 * @param offset
 *   bytes
 */
private[push] final case class VectorPlace(file: Int, offset: Int) {
  private[push] def word: Long = (file + 1L) << 32 | offset
}

private[push] object VectorPlace {
  private[push] def of(word: Long): Option[VectorPlace] =
    if (word == 0) None else Some(VectorPlace((word >>> 32).toInt - 1, word.toInt))
}

object LaneSlots {
  private val PublishedOffset = 0
  private val LengthOffset = 8 // and 16, of the other slot
  private val DestinationOffset = 24
  private val SourceOffset = 32
  private val ReleasedOffset = 64 // a cache line of its own: the reader writes it

  // Of a length's word: the message is not in its slot.
  private val AtDestination = 1L << 32
  private val InPlace = 1L << 33

  val Alignment = 64
  val HeaderBytes = 128

  def stride(lane: Lane): Int = (lane.capacity + Alignment - 1) / Alignment * Alignment

  /** Memory that a lane with slots of its own needs, a multiple of the alignment. */
  def bytes(lane: Lane): Long = bytes(lane.capacity.toLong)

  /** The same for messages of at most `capacity` bytes. */
  def bytes(capacity: Long): Long = HeaderBytes + 2 * ((capacity + Alignment - 1) / Alignment * Alignment)

  /** A word that another process may write, at a multiple of 8 bytes. */
  def word(memory: ByteBuffer, offset: Int): Long = SharedWords.getAcquire(memory, offset)

  /** Slots in fresh direct memory of this process. */
  def allocate(lane: Lane, destination: Option[ByteBuffer]): LaneSlots = {
    val size = if (destination.isDefined) HeaderBytes.toLong else bytes(lane)
    if (size + Alignment > Int.MaxValue)
      throw new RunFailedException(
        s"Lane ${lane.id} asks for messages of ${lane.capacity} bytes, too large for two slots in one buffer; use smaller buckets."
      )
    val memory = ByteBuffer.allocateDirect(size.toInt + Alignment).alignedSlice(Alignment).slice(0, size.toInt)
    new LaneSlots(lane, memory, destination)
  }
}
