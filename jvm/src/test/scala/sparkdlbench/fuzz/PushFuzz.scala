package sparkdlbench.transport
package push
package fuzz

import sparkdlbench.fuzz.FuzzTarget

import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8

/** The frames of one stream, in pieces whose length the first byte tells. */
object FramesFuzz extends FuzzTarget("frames") {
  private val lanes = Seq(Lane(0, from = 1, to = 0, capacity = 40), Lane(1, from = 1, to = 0, capacity = 40000))
  def seeds: Seq[Array[Byte]] = Seq(
    Array(7.toByte) ++ FrameBytes.control(Control.Ready(1, None)) ++ FrameBytes.frame(0, 0, new Array[Byte](40)) ++
      FrameBytes.frame(Frame.PaddingLane, 0, new Array[Byte](3)) ++ FrameBytes.frame(0, 1, new Array[Byte](5)),
    Array(-1.toByte) ++ FrameBytes.frame(1, 0, new Array[Byte](20000)) ++ FrameBytes.control(Control.Bye)
  )
  protected def read(input: Array[Byte]): Unit = {
    val mailbox = Mailbox.open(StreamId.inboxNumber("fuzz"), rank = 0)
    try {
      lanes.foreach(lane => mailbox.register(LaneSlots.allocate(lane, None)))
      val reader = mailbox.reader(1)
      reader.beginEndless()
      val stream = ByteBuffer.wrap(input)
      val piece = if (stream.hasRemaining) 1 + (stream.get() & 0xff) * 8 else 1
      while (stream.hasRemaining) {
        val lent = reader.lend()
        val most = math.min(if (lent == null) piece else math.min(piece, lent.remaining), stream.remaining)
        val next = stream.slice(stream.position(), most)
        stream.position(stream.position() + most)
        reader.accept(if (lent == null) next else lent.put(next).flip())
      }
      if (mailbox.failed.nonEmpty) throw new AssertionError("failed without an error for the network")
    } finally mailbox.close()
  }
}

/** What ranks tell each other in words. */
object WordsFuzz extends FuzzTarget("words") {
  def seeds: Seq[Array[Byte]] = Seq(
    "ready 3 4096 77aa /dev/shm/x y",
    "attached 1 true",
    "77-1-0",
    PushPeer.print(PushPeer(1, "host", 7, "exec", "p", "k", encrypted = false, 5))
  ).map(_.getBytes(UTF_8))
  protected def read(input: Array[Byte]): Unit = {
    val text = new String(input, UTF_8)
    Control.parse(text).foreach { word =>
      if (!Control.parse(Control.print(word)).contains(word)) throw new AssertionError(s"$word is printed otherwise")
    }
    StreamId.parse(text).foreach { id =>
      if (!StreamId.parse(id.toString).contains(id)) throw new AssertionError(s"$id is printed otherwise")
    }
    sparkdlbench.common.ProcessMark.parse(text)
    try PushPeer.parse(text): Unit
    catch { case _: sparkdlbench.common.RunFailedException => () }
  }
}
