package sparkdlbench.transport
package push

import sparkdlbench.common.RunFailedException
import sparkdlbench.data.ParserFuzzSuite
import sparkdlbench.OnOneLine

import java.io.ByteArrayOutputStream
import java.nio.ByteBuffer
import java.util.Arrays
import scala.util.{Failure, Random, Success, Try}

/**
 * Good streams with bytes changed, cut out, doubled and put in, from a seed. A reader takes them, or fails its receiver with an error of
 * ours; what came whole before the damage is as it was sent, and nothing is written over a message that nobody has read.
 */
class FrameFuzzSuite extends OnOneLine {
  import FrameFuzzSuite._

  private val cases = 500

  test("many small frames") {
    fuzz(Written((0 until 6).map(Lane(_, from = 1, to = 0, capacity = 40)), new Random(1)))
  }

  test("frames that are large enough to be put in place by the network") {
    fuzz(Written(Seq(Lane(0, 1, 0, 40), Lane(1, 1, 0, 60000), Lane(2, 1, 0, 40000)), new Random(2)))
  }

  private def fuzz(good: Written): Unit = {
    for (lends <- Seq(false, true)) assert(!refused(good, good.bytes, 0, lends), "the good stream")
    val outcomes = for {
      seed <- 1 to cases
      lends <- Seq(false, true)
    } yield refused(good, ParserFuzzSuite.mutated(good.bytes, new Random(seed)), seed, lends)
    assert(outcomes.count(identity) > cases / 4 && outcomes.exists(!_), outcomes.count(identity))
  }

  /** Whether a reader refuses these bytes, which `good` was made into; checks what it has made of them. */
  private def refused(good: Written, bytes: Array[Byte], seed: Int, lends: Boolean): Boolean = {
    val label = s"seed $seed, lends $lends"
    val mailbox = Mailbox.open(StreamId.inboxNumber(label), rank = 0)
    try {
      val slots = good.lanes.map(lane => lane -> LaneSlots.allocate(lane, None)).toMap
      slots.values.foreach(mailbox.register)
      val reader = mailbox.reader(1)
      reader.beginEndless()
      val outcome = Try(pour(reader, ByteBuffer.wrap(bytes), new Random(seed), lends))
      val damage = Arrays.mismatch(good.bytes, bytes)
      for (one <- good.sent if damage < 0 || one.end <= damage) {
        assert(slots(one.lane).hasArrived(one.sequence), s"$label: message ${one.sequence} of ${one.lane}")
        assert(slots(one.lane).view(one.sequence) == ByteBuffer.wrap(one.payload), s"$label: ${one.lane}")
      }
      slots.values.foreach(each => assert(!each.hasArrived(2), s"$label: a third message on ${each.lane}"))
      outcome match {
        case Success(_) => assert(mailbox.failed.isEmpty, label)
        case Failure(error: RunFailedException) => assert(mailbox.failed.exists(_ eq error), label)
        case Failure(error) => throw new AssertionError(s"$label: $error", error)
      }
      outcome.isFailure
    } finally mailbox.close()
  }

  /** As a server does with a connection: in whatever pieces, and into lent memory where there is any and `lends` says so. */
  private def pour(reader: FrameReader, stream: ByteBuffer, random: Random, lends: Boolean): Unit =
    while (stream.hasRemaining) {
      val memory = if (lends) reader.lend() else null
      val most = math.min(if (memory == null) 4096 else memory.remaining, stream.remaining)
      val piece = stream.slice(stream.position(), 1 + random.nextInt(most))
      stream.position(stream.position() + piece.remaining)
      reader.accept(if (memory == null) piece else memory.put(piece).flip())
    }
}

private object FrameFuzzSuite {

  /** A message of a stream, whose frame ends at `end`. */
  final case class Sent(lane: Lane, sequence: Long, payload: Array[Byte], end: Int)

  /** A good stream. */
  final case class Written(lanes: Seq[Lane], bytes: Array[Byte], sent: Seq[Sent])

  object Written {

    /** Two messages on each lane, which is as many as a lane takes unread, among control words and padding. */
    def apply(lanes: Seq[Lane], random: Random): Written = {
      val bytes = new ByteArrayOutputStream
      val sent = for (sequence <- 0L until 2L; lane <- lanes) yield {
        bytes.write(FrameBytes.control(Control.Ready(random.nextInt(100), None)))
        bytes.write(FrameBytes.frame(Frame.PaddingLane, 0, new Array[Byte](random.nextInt(9))))
        val payload = new Array[Byte](lane.capacity - random.nextInt(9))
        random.nextBytes(payload)
        bytes.write(FrameBytes.frame(lane.id, sequence, payload))
        Sent(lane, sequence, payload, bytes.size)
      }
      Written(lanes, bytes.toByteArray, sent)
    }
  }
}
