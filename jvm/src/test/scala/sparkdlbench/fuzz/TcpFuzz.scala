package sparkdlbench.transport.tcp
package fuzz

import io.netty.buffer.{ByteBuf, Unpooled}
import io.netty.channel.Channel
import io.netty.channel.embedded.EmbeddedChannel
import io.netty.util.concurrent.ImmediateEventExecutor
import sparkdlbench.common.RunFailedException
import sparkdlbench.fuzz.FuzzTarget
import sparkdlbench.transport.Lane
import sparkdlbench.transport.push.{Control, FrameBytes, LaneSlots, Mailbox, StreamId}

import java.io.IOException
import java.nio.charset.StandardCharsets.UTF_8

private object Rank {
  val handshake = new Handshake(Array.tabulate[Byte](32)(_.toByte))
  val lane: Lane = Lane(3, from = 1, to = 0, capacity = 1000)

  /** A rank's server, while `body` runs. */
  def serving[T](body: (TcpServer, Mailbox) => T): T = {
    val mailbox = Mailbox.open(StreamId.inboxNumber("fuzz"), rank = 0)
    try {
      mailbox.register(LaneSlots.allocate(lane, None))
      body(new TcpServer(0, handshake, () => 2, None), mailbox)
    } finally mailbox.close()
  }

  def heard(channel: EmbeddedChannel): Array[Byte] =
    Iterator.continually(channel.readOutbound[ByteBuf]()).takeWhile(_ != null).foldLeft(Array.emptyByteArray) {
      (sofar, part) =>
        val bytes = new Array[Byte](part.readableBytes)
        part.readBytes(bytes)
        part.release()
        sofar ++ bytes
    }
}

/** A stranger at a rank's server: nothing that it says is taken. */
object TcpStrangerFuzz extends FuzzTarget("tcp-stranger") {
  def seeds: Seq[Array[Byte]] = Seq(
    Rank.handshake.hello(StreamId(77, 1, 0), 0, 1) ++ new Array[Byte](Handshake.ProofBytes)
  )
  protected def read(input: Array[Byte]): Unit = Rank.serving { (server, mailbox) =>
    val channel = new EmbeddedChannel(server)
    try {
      input.grouped(50).foreach(piece => if (channel.isOpen) channel.writeInbound(Unpooled.wrappedBuffer(piece)): Unit)
      if (Rank.heard(channel).length > Handshake.NonceBytes + Handshake.ProofBytes) throw new AssertionError("admitted")
      if (mailbox.failed.nonEmpty) throw new AssertionError("it has failed the rank")
      channel.checkException()
    } finally channel.finishAndReleaseAll(): Unit
  }
}

/** A rank of the run, which proves itself and then sends whatever. */
object TcpStreamFuzz extends FuzzTarget("tcp-stream") {
  def seeds: Seq[Array[Byte]] = Seq(
    FrameBytes.control(Control.Ready(1, None)) ++ FrameBytes.frame(Rank.lane.id, 0, new Array[Byte](300))
  )
  protected def read(input: Array[Byte]): Unit = Rank.serving { (server, mailbox) =>
    val channel = new EmbeddedChannel(server)
    try {
      val hello = Rank.handshake.hello(StreamId(mailbox.inbox, 1, 0), 0, 1)
      channel.writeInbound(Unpooled.wrappedBuffer(hello))
      val nonce = Rank.heard(channel).take(Handshake.NonceBytes)
      channel.writeInbound(Unpooled.wrappedBuffer(Rank.handshake.clientProof(hello, nonce)))
      input.grouped(100).foreach(piece => if (channel.isOpen) channel.writeInbound(Unpooled.wrappedBuffer(piece)): Unit)
      channel.checkException()
      if (channel.isOpen != mailbox.failed.isEmpty)
        throw new AssertionError("stream and rank disagree whether it has failed")
      mailbox.failed.foreach {
        case _: RunFailedException => ()
        case other => throw new AssertionError(other)
      }
    } finally channel.finishAndReleaseAll(): Unit
  }
}

/** Whoever answers where a rank is looked for: it is never taken for one. */
object TcpAnswerFuzz extends FuzzTarget("tcp-answer") {
  def seeds: Seq[Array[Byte]] = Seq(new Array[Byte](Handshake.NonceBytes + Handshake.ProofBytes) :+ TcpServer.Accepted)
  protected def read(input: Array[Byte]): Unit = {
    val promise = ImmediateEventExecutor.INSTANCE.newPromise[Channel]()
    val hello = Rank.handshake.hello(StreamId(77, 1, 0), 0, 1)
    val channel = new EmbeddedChannel(new ClientHandshake(Rank.handshake, hello, Endpoint("host", 1), promise))
    try {
      input.grouped(40).foreach(piece => if (channel.isOpen) channel.writeInbound(Unpooled.wrappedBuffer(piece)): Unit)
      channel.checkException()
    } finally channel.finishAndReleaseAll(): Unit
    if (promise.isSuccess) throw new AssertionError("taken for a rank")
    promise.cause match {
      case _: IOException => ()
      case other => throw new AssertionError("no reason, or another", other)
    }
  }
}

/** Where ranks say that they listen, and what they say that they reached. */
object TcpOfferFuzz extends FuzzTarget("tcp-offer") {
  def seeds: Seq[Array[Byte]] =
    Seq(Offer.print("p", Seq(Endpoint("::1", 7), Endpoint("host", 8))), "/0+1//2/").map(_.getBytes(UTF_8))
  protected def read(input: Array[Byte]): Unit = {
    val text = new String(input, UTF_8)
    PortRange.parse(text)
    try Offer.parse(text): Unit
    catch { case _: RunFailedException => () }
    try Offer.parseReached(text): Unit
    catch { case _: RunFailedException => () }
  }
}
