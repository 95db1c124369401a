package sparkdlbench.transport.ucx

import org.openucx.jucx.ucp.{UcpAmData, UcpRequest}
import org.openucx.jucx.ucs.UcsConstants.STATUS
import org.openucx.jucx.{UcxCallback, UcxUtils}
import sparkdlbench.common.RunFailedException
import sparkdlbench.transport.push.{Control, Frame, FrameReader, LaneSlots, Mailbox}

import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8
import scala.collection.mutable

/**
 * A frame's header: the number of its stream, then as in `tcp` (lane: Int, length: Int, sequence: Long), network order; the
 * payload is the message's data.
 */
private[ucx] object UcxFrame {
  val Kind = 5
  val HeaderBytes: Int = 8 + Frame.HeaderBytes

  def putHeader(target: ByteBuffer, stream: Long, lane: Int, length: Int, sequence: Long): Unit = {
    target.clear()
    target.putLong(stream)
    Frame.putHeader(target, lane, length, sequence)
    target.flip(): Unit
  }
}

/**
 * Where the frames of admitted streams arrive: each goes to the slot or destination of its lane. UCX completes a large message
 * later than a small one that was sent after it, so the lane's next message waits for it. On the loop's thread alone.
 *
 * @param refuse
 *   hears of frames that belong to no stream
 */
private[ucx] final class UcxInbox(rank: Int, refuse: String => Unit) {
  private val streams = new java.util.HashMap[Long, UcxStream]

  def admit(number: Long, from: Int, mailbox: Mailbox): Unit =
    streams.put(number, new UcxStream(from, rank, mailbox)): Unit

  /** The ranks whose streams come here and that have not said goodbye. */
  def unfinished: Boolean = streams.values.stream.anyMatch(one => !one.mailbox.hasLeft(one.from))

  /** @return what UCX wants to hear: done with the data, or not yet */
  def accept(header: ByteBuffer, data: UcpAmData): Int =
    if (header.remaining != UcxFrame.HeaderBytes) refused(s"a frame with ${header.remaining} bytes of header")
    else {
      val stream = streams.get(header.getLong())
      if (stream == null) refused("a frame of a stream that nobody has proved")
      else stream.accept(header.getInt(), header.getInt(), header.getLong(), data)
    }

  private def refused(why: String): Int = { refuse(why); STATUS.UCS_OK }
}

/** One stream's arrival. */
private final class UcxStream(val from: Int, rank: Int, val mailbox: Mailbox) {
  private val lanes = mutable.LongMap.empty[Arriving]

  def accept(lane: Int, length: Int, sequence: Long, data: UcpAmData): Int =
    try {
      if (length != data.getLength) malformed(s"$length bytes announced, ${data.getLength} sent")
      if (lane == Frame.ControlLane) { control(data); STATUS.UCS_OK }
      else arriving(lane).accept(length, sequence, data)
    } catch { case error: RuntimeException => mailbox.fail(error); STATUS.UCS_OK }

  private def control(data: UcpAmData): Unit = {
    if (!data.isDataValid || data.getLength > FrameReader.MaxControlBytes)
      malformed(s"a control word of ${data.getLength} bytes")
    val bytes = new Array[Byte](data.getLength.toInt)
    UcxUtils.getByteBufferView(data.getDataAddress, data.getLength).get(bytes)
    val text = new String(bytes, UTF_8)
    mailbox.tell(from, Control.parse(text).getOrElse(malformed(s"control text '$text'")))
  }

  private def arriving(lane: Int): Arriving = lanes.getOrElseUpdate(
    lane.toLong, {
      val slots = mailbox.slots(lane).getOrElse(malformed(s"lane $lane, which is not open"))
      if (slots.lane.from != from) malformed(s"lane $lane, which starts at rank ${slots.lane.from}")
      new Arriving(slots)
    }
  )

  private def malformed(what: String): Nothing = throw new RunFailedException(
    s"Rank $from sent rank $rank a frame that makes no sense: $what. Check that all executors run the same version of this package."
  )

  /** A lane's messages, published in their order. */
  private final class Arriving(slots: LaneSlots) {
    private var busy = false
    private var next: () => Unit = _

    def accept(length: Int, sequence: Long, data: UcpAmData): Int =
      if (!busy) place(length, sequence, data)
      else if (next != null) malformed(s"message $sequence of lane ${slots.lane.id} before two others were read")
      else if (!data.isDataValid) {
        next = () => place(length, sequence, data): Unit
        STATUS.UCS_INPROGRESS
      } else {
        val copy = ByteBuffer.allocateDirect(length).put(view(data)).flip()
        next = () => put(length, sequence, copy)
        STATUS.UCS_OK
      }

    private def place(length: Int, sequence: Long, data: UcpAmData): Int =
      if (data.isDataValid) { put(length, sequence, view(data)); STATUS.UCS_OK }
      else {
        val target = slots.claim(sequence, length)
        busy = true
        data.receive(
          UcxUtils.getAddress(target),
          new UcxCallback {
            override def onSuccess(request: UcpRequest): Unit = UcxLoop.guarded(mailbox.fail)(arrived(sequence, length))
            override def onError(status: Int, message: String): Unit = mailbox.fail(
              new RunFailedException(
                s"message $sequence of lane ${slots.lane.id} from rank $from broke off: $message"
              )
            )
          }
        )
        STATUS.UCS_INPROGRESS
      }

    private def put(length: Int, sequence: Long, bytes: ByteBuffer): Unit = {
      slots.claim(sequence, length).put(bytes)
      publish(sequence, length)
    }

    private def arrived(sequence: Long, length: Int): Unit = {
      busy = false
      publish(sequence, length)
      val waiting = next
      next = null
      if (waiting != null) waiting()
    }

    private def publish(sequence: Long, length: Int): Unit = { slots.publish(sequence, length); mailbox.wakeUp() }

    private def view(data: UcpAmData): ByteBuffer =
      if (data.getLength == 0) UcxStream.nothing else UcxUtils.getByteBufferView(data.getDataAddress, data.getLength)
  }
}

private object UcxStream { private val nothing = ByteBuffer.allocateDirect(0) }
