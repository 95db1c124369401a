package sparkdlbench.transport
package push

import org.scalatest.funsuite.AnyFunSuite

import java.nio.ByteBuffer
import scala.util.Random
import sparkdlbench.common.RunFailedException

class FramesSuite extends AnyFunSuite {
  import FrameBytes.{control, frame}

  private val lane = Lane(3, from = 1, to = 0, capacity = 1000)

  private def withMailbox[T](body: (Mailbox, LaneSlots) => T): T = withLane(lane)(body)

  private def withLane[T](opened: Lane)(body: (Mailbox, LaneSlots) => T): T = {
    val mailbox = Mailbox.open(Random.nextLong() & Long.MaxValue, rank = 0)
    val slots = LaneSlots.allocate(opened, None)
    mailbox.register(slots)
    try body(mailbox, slots)
    finally mailbox.close()
  }

  private def bytes(buffer: ByteBuffer): Seq[Byte] = {
    val copy = new Array[Byte](buffer.remaining)
    buffer.duplicate().get(copy)
    copy.toSeq
  }

  test("stream ids print, parse and pack both ranks into a non-negative Int") {
    val random = new Random(1)
    val ids = Seq.fill(100)(
      StreamId(random.nextLong() & Long.MaxValue, random.nextInt(StreamId.MaxFrom), random.nextInt(StreamId.MaxTo))
    )
    (ids :+ StreamId(Long.MaxValue, StreamId.MaxFrom - 1, StreamId.MaxTo - 1)).foreach { id =>
      assert(StreamId.parse(id.toString).contains(id))
      assert(id.ranks >= 0 && StreamId(id.inbox, id.ranks) == id)
    }
    assert(StreamId.parse("1-2").isEmpty && StreamId.parse("a-b-c").isEmpty)
    val numbers = Seq.fill(1000)(StreamId.inboxNumber("run-0"))
    assert(numbers.forall(_ >= 0) && numbers.distinct.size == numbers.size)
  }

  test("control words print and parse") {
    val offer = HostLocalOffer("/a folder/with spaces", 12345678901L, "00ff" * 8)
    Seq(
      Control.Ready(1, None),
      Control.Ready(7, Some(offer)),
      Control.Ready(7, Some(offer), Seq(VectorOffer("/proc/17/fd/3", 4000, "29-17"), VectorOffer("/a: b", 0, ""))),
      Control.Attached(2, attached = false),
      Control.Attached(2, attached = true, Seq(VectorOffer("/proc/17/fd/3", 4000, "29-17"))),
      Control.Verdict(3, shared = true),
      Control.Bye
    ).foreach(word => assert(Control.parse(Control.print(word)).contains(word)))
    assert(Control.parse("hello").isEmpty && Control.parse("ready x").isEmpty)
    assert(Control.parse("ready 1 100").isEmpty && Control.parse("attached 1 true x:y:z").isEmpty)
  }

  test("messages, control words and padding arrive whole in whatever pieces the bytes come") {
    val random = new Random(2)
    for (largest <- Seq(1, 2, 15, 16, 17, 100, 5000)) withMailbox { (mailbox, slots) =>
      val reader = mailbox.reader(1)
      val messages =
        Seq.tabulate(6)(i => Array.fill(if (i == 2) 0 else 1 + random.nextInt(1000))(random.nextInt().toByte))
      messages.zipWithIndex.foreach { case (message, sequence) =>
        val stream = control(Control.Ready(sequence, None)) ++ frame(
          Frame.PaddingLane,
          0,
          new Array(random.nextInt(99))
        ) ++
          frame(lane.id, sequence.toLong, message)
        var at = 0
        while (at < stream.length) {
          val piece = math.min(stream.length - at, 1 + random.nextInt(largest))
          assert(!slots.hasArrived(sequence.toLong))
          reader.accept(ByteBuffer.wrap(stream, at, piece).slice())
          at += piece
        }
        assert(slots.hasArrived(sequence.toLong))
        assert(bytes(slots.view(sequence.toLong)) == message.toSeq)
        slots.release(sequence.toLong)
        assert(mailbox.take(1) { case word: Control.Ready => word }.contains(Control.Ready(sequence, None)))
      }
      assert(mailbox.failed.isEmpty)
    }
  }

  /** What a server does with a stream: upload after upload, into lent memory where there is any. */
  private def serve(reader: FrameReader, stream: ByteBuffer, random: Random)(look: () => Unit): Unit = {
    var window = UploadWindow.FirstBytes
    while (stream.hasRemaining) {
      reader.beginUpload()
      val end = stream.position() + window.toInt
      while (stream.position() < end) {
        val memory = reader.lend()
        val most = math.min(if (memory == null) 65536 else memory.remaining, end - stream.position())
        val piece = stream.slice(stream.position(), 1 + random.nextInt(most))
        stream.position(stream.position() + piece.remaining)
        if (memory == null) reader.accept(piece)
        else {
          val header = memory.remaining <= Frame.HeaderBytes
          assert((header || memory.remaining >= FrameReader.LeastLentBytes) && most == memory.remaining)
          reader.accept(memory.put(piece).flip())
        }
        look()
      }
      reader.endUpload()
      window = UploadWindow.after(window)
    }
  }

  test("for a known number of bytes a place is lent where all of them belong to one message of the upload") {
    val random = new Random(5)
    val large = lane.copy(capacity = 300000)
    withLane(large) { (mailbox, slots) =>
      val reader = mailbox.reader(1)
      val message = Array.fill(250000)(random.nextInt().toByte)
      val stream = ByteBuffer.wrap(frame(large.id, 0L, message))
      reader.beginUpload()
      assert(reader.lend(20000) == null)
      reader.accept(stream.slice(0, 50000))
      stream.position(50000)
      var placed = 0
      for (wanted <- Seq(20000, 100, 60000, 30000)) {
        val memory = reader.lend(wanted)
        val piece = stream.slice(stream.position(), wanted)
        stream.position(stream.position() + wanted)
        if (memory == null) reader.accept(piece)
        else {
          assert(memory.remaining == wanted)
          placed += 1
          reader.accept(memory.put(piece).flip())
        }
      }
      assert(placed == 3 && !slots.hasArrived(0L))
      assert(reader.lend(stream.remaining + 1) == null) // the message's end and what follows
      reader.accept(stream.slice(stream.position(), stream.remaining))
      assert(slots.hasArrived(0L) && bytes(slots.view(0L)) == message.toSeq)
      assert(reader.lend(20000) == null)
    }
  }

  test("what the network puts in place is the same message, across the uploads' ends") {
    val random = new Random(4)
    val large = lane.copy(capacity = 300000)
    withLane(large) { (mailbox, slots) =>
      val reader = mailbox.reader(1)
      val messages = Seq.fill(9)(Array.fill(100000 + random.nextInt(200000))(random.nextInt().toByte))
      val frames =
        messages.zipWithIndex.map { case (message, sequence) => frame(large.id, sequence.toLong, message) }
      val whole = frames.reduce(_ ++ _)
      val uploads = Iterator.iterate(UploadWindow.FirstBytes)(UploadWindow.after).scanLeft(0L)(_ + _)
      val padded = uploads.dropWhile(_ < whole.length + Frame.HeaderBytes).next().toInt
      val padding =
        frame(Frame.PaddingLane, 0, new Array(padded - whole.length - Frame.HeaderBytes))
      val before = FrameReader.inPlaceBytes.sum
      var next = 0
      serve(reader, ByteBuffer.wrap(whole ++ padding), random) { () =>
        if (next < messages.size && slots.hasArrived(next.toLong)) {
          assert(bytes(slots.view(next.toLong)) == messages(next).toSeq)
          slots.release(next.toLong)
          next += 1
        }
      }
      assert(mailbox.failed.isEmpty)
      // All but the ends of messages that do not pay, and what came along with those.
      val share = (FrameReader.inPlaceBytes.sum - before).toDouble / whole.length
      assert(share > 0.6, share)
      assert(next == messages.size)
    }
  }

  test("an upload that ends early fails the receiver") {
    withMailbox { (mailbox, _) =>
      val reader = mailbox.reader(1)
      reader.beginUpload()
      reader.accept(ByteBuffer.wrap(frame(Frame.PaddingLane, 0, new Array(100))))
      assert(intercept[RunFailedException](reader.endUpload()).getMessage.contains("bytes from its end"))
      assert(mailbox.failed.isDefined)
    }
  }

  private def refused(stream: Array[Byte]): String = withMailbox { (mailbox, slots) =>
    val error = intercept[RunFailedException](mailbox.reader(1).accept(ByteBuffer.wrap(stream)))
    assert(mailbox.failed.contains(error))
    assert(!slots.hasArrived(2))
    error.getMessage
  }

  test("a message that would overwrite one still being read fails the receiver and is not written") {
    val three = (0 until 3).map(sequence => frame(lane.id, sequence.toLong, Array.fill(8)(sequence.toByte)))
    assert(refused(three.reduce(_ ++ _)).contains("overrun"))
  }

  test("messages out of order, over the lane's capacity, of unknown lanes or with senseless lengths are refused") {
    assert(refused(frame(lane.id, 1, new Array(8))).contains("message 1 came where message 0 was due"))
    assert(refused(frame(lane.id, 0, new Array(1001))).contains("over the lane's 1000"))
    assert(refused(frame(99, 0, new Array(8))).contains("lane 99, which is not open"))
    assert(refused(frame(-7, 0, new Array(8))).contains("lane -7"))
    val negative = ByteBuffer.allocate(Frame.HeaderBytes)
    Frame.putHeader(negative, lane.id, -1, 0)
    assert(refused(negative.array).contains("length -1"))
  }

  test("a rank cannot write to a lane that starts at another rank") {
    withMailbox { (mailbox, slots) =>
      val stream = ByteBuffer.wrap(frame(lane.id, 0, new Array(8)))
      assert(
        intercept[RunFailedException](mailbox.reader(2).accept(stream)).getMessage.contains("which starts at rank 1")
      )
      assert(!slots.hasArrived(0))
    }
  }

  test("streams of another attempt are counted and refused") {
    withMailbox { (mailbox, _) =>
      val before = Mailbox.refusedStreams
      val other = StreamId((mailbox.inbox + 1) & Long.MaxValue, 1, 0)
      assert(intercept[RunFailedException](Mailbox.accept(other)).getMessage.contains("another attempt"))
      assert(Mailbox.refusedStreams == before + 1)
      assert(Mailbox.accept(StreamId(mailbox.inbox, 1, 0)) eq mailbox)
    }
  }

  test("messages with a destination are written there, in place or through shared slots") {
    val target = ByteBuffer.allocateDirect(1000)
    val inPlace = LaneSlots.allocate(lane, Some(target))
    val memory = ByteBuffer.allocateDirect(LaneSlots.bytes(lane).toInt + 64).alignedSlice(64)
    val copied = new LaneSlots(lane, memory.slice(0, LaneSlots.bytes(lane).toInt), Some(target))
    for (slots <- Seq(inPlace, copied); sequence <- 0L until 5L) {
      val message = Array.tabulate(10 + sequence.toInt)(i => (i * sequence).toByte)
      slots.claim(sequence, message.length).put(message)
      slots.publish(sequence, message.length)
      assert(bytes(slots.view(sequence)) == message.toSeq)
      assert(message.indices.forall(i => target.get(i) == message(i)))
      slots.release(sequence)
    }
  }
}
