package sparkdlbench.transport.tcp

import io.netty.buffer.{ByteBuf, Unpooled}
import io.netty.channel.embedded.EmbeddedChannel
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.RunFailedException
import sparkdlbench.data.ParserFuzzSuite
import sparkdlbench.transport.Lane
import sparkdlbench.transport.push.{Control, FrameBytes, LaneSlots, Mailbox, StreamId}

import java.nio.ByteBuffer
import java.util.Arrays
import java.util.concurrent.TimeUnit
import scala.util.Random

/** What a rank's server makes of what clients say, in one thread: Netty's embedded channels have no sockets, and a clock to be set. */
class TcpServerSuite extends AnyFunSuite {
  private val handshake = new Handshake(Array.tabulate[Byte](32)(_.toByte))
  private val lane = Lane(3, from = 1, to = 0, capacity = 1000)
  private val message = Array.tabulate[Byte](900)(i => (i * 11).toByte)

  /** A rank with one lane, and its server. */
  private def withRank[T](body: (TcpServer, Mailbox, LaneSlots) => T): T = {
    val mailbox = Mailbox.open(StreamId.inboxNumber("tcp-server-suite"), rank = 0)
    try {
      val slots = LaneSlots.allocate(lane, None)
      mailbox.register(slots)
      body(new TcpServer(0, handshake, () => 2, None), mailbox, slots)
    } finally mailbox.close()
  }

  /** Rank 1's, with a nonce that every run of the test has. */
  private def hello(mailbox: Mailbox): Array[Byte] = {
    val bytes = handshake.hello(StreamId(mailbox.inbox, 1, 0), 0, 1)
    (bytes.length - Handshake.NonceBytes until bytes.length).foreach(i => bytes(i) = (i * 7).toByte)
    bytes
  }

  private def say(channel: EmbeddedChannel, words: Array[Byte]): Unit =
    channel.writeInbound(Unpooled.copiedBuffer(words)): Unit

  /** What the server has said since one last listened. */
  private def heard(channel: EmbeddedChannel): Array[Byte] = {
    val all = Unpooled.buffer()
    var part = channel.readOutbound[ByteBuf]()
    while (part != null) {
      all.writeBytes(part)
      part.release()
      part = channel.readOutbound[ByteBuf]()
    }
    val bytes = new Array[Byte](all.readableBytes)
    all.readBytes(bytes)
    bytes
  }

  /** Rank 1's proof for `greeting`, once the server has answered. */
  private def proof(channel: EmbeddedChannel, greeting: Array[Byte]): Array[Byte] =
    handshake.clientProof(greeting, heard(channel).take(Handshake.NonceBytes))

  /** A stream of rank 1's. */
  private def admitted(server: TcpServer, mailbox: Mailbox): EmbeddedChannel = {
    val (channel, greeting) = (new EmbeddedChannel(server), hello(mailbox))
    say(channel, greeting)
    say(channel, proof(channel, greeting))
    assert(heard(channel).toSeq == Seq(TcpServer.Accepted))
    channel
  }

  private def passProofLimit(channel: EmbeddedChannel): Unit = {
    channel.advanceTimeBy(TcpServer.HandshakeMillis + 1, TimeUnit.MILLISECONDS)
    channel.runScheduledPendingTasks(): Unit
  }

  test("who proves to be a rank of the run is admitted, for as long as it likes, and its messages arrive") {
    withRank { (server, mailbox, slots) =>
      val channel = admitted(server, mailbox)
      passProofLimit(channel)
      say(channel, FrameBytes.frame(lane.id, 0, message))
      assert(slots.hasArrived(0) && slots.view(0) == ByteBuffer.wrap(message))
      assert(channel.isOpen && server.refused == 0 && mailbox.failed.isEmpty)
      channel.close(): Unit
    }
  }

  test("who is silent past the limit before its proof is refused, and the next one is admitted") {
    withRank { (server, mailbox, _) =>
      val greeting = hello(mailbox)
      val silences = Seq(0, Handshake.HelloBytes / 2, Handshake.HelloBytes)
      for ((said, number) <- silences.zipWithIndex) {
        val channel = new EmbeddedChannel(server)
        if (said > 0) say(channel, greeting.take(said))
        assert(channel.isOpen && server.refused == number, said)
        passProofLimit(channel)
        assert(!channel.isOpen && server.refused == number + 1, said)
      }
      assert(admitted(server, mailbox).isOpen && mailbox.failed.isEmpty)
    }
  }

  test("a hello with bytes changed is refused, at once, for its proof, or for its silence, and touches nothing") {
    withRank { (server, mailbox, slots) =>
      val genuine = hello(mailbox)
      val asked = (1 to 400).count { seed =>
        val words = ParserFuzzSuite.mutated(genuine, new Random(seed))
        val before = server.refused
        val channel = new EmbeddedChannel(server)
        say(channel, words)
        val answer = heard(channel)
        // A proof that was made for the genuine one, of the nonce that the server has just given.
        if (channel.isOpen) say(channel, handshake.clientProof(genuine, Arrays.copyOf(answer, Handshake.NonceBytes)))
        if (channel.isOpen) passProofLimit(channel)
        // The limit ends no stream that was admitted.
        assert(!channel.isOpen && server.refused > before, seed)
        answer.nonEmpty
      }
      assert(asked > 10 && asked < 200, asked)
      assert(mailbox.failed.isEmpty && !slots.hasArrived(0))
      assert(admitted(server, mailbox).isOpen)
    }
  }

  test("an admitted stream with bytes changed is taken, or ends with an error of ours for its receiver") {
    val ended = (1 to 400).count { seed =>
      withRank { (server, mailbox, slots) =>
        val good = FrameBytes.control(Control.Ready(1, None)) ++ FrameBytes.frame(lane.id, 0, message.take(30)) ++
          FrameBytes.frame(lane.id, 1, message)
        val random = new Random(seed)
        var left = ParserFuzzSuite.mutated(good, random)
        val channel = admitted(server, mailbox)
        while (left.nonEmpty && channel.isOpen) {
          val length = 1 + random.nextInt(math.min(left.length, 200))
          say(channel, left.take(length))
          left = left.drop(length)
        }
        assert(channel.isOpen == mailbox.failed.isEmpty && server.refused == 0 && !slots.hasArrived(2), seed)
        assert(mailbox.failed.forall(_.isInstanceOf[RunFailedException]), seed)
        val over = !channel.isOpen
        channel.close()
        over
      }
    }
    assert(ended > 100 && ended < 400, ended)
  }
}
