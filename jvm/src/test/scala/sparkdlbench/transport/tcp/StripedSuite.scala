package sparkdlbench.transport.tcp

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.topology.{CollectiveCheck, Recursive, Ring, Sliced, TestCodecs}
import sparkdlbench.transport.push.{Frame, PushChannel}
import sparkdlbench.transport.{ForwardingTransport, Lane, ThreadGroup, Transport}

import java.nio.ByteBuffer
import scala.collection.mutable

/** Which of several connections to a rank carries what. */
class StripedSuite extends AnyFunSuite {

  /** Notes what is sent on which lane. */
  private final class Noting(inner: Transport) extends ForwardingTransport(inner) {
    val sent = mutable.ArrayBuffer.empty[(Lane, Long, Int)]
    override def send(lane: Lane, sequence: Long, data: ByteBuffer): Unit = {
      sent += ((lane, sequence, data.remaining))
      inner.send(lane, sequence, data)
    }
  }

  private final class Connection extends PushChannel {
    var payload = 0L
    val frames = mutable.ArrayBuffer.empty[(Int, Long)]
    def push(lane: Int, sequence: Long, data: ByteBuffer): Unit = {
      payload += data.remaining
      frames += ((lane, sequence))
    }
    def isDrained = true
    def framingBytes = 0L
    def finish(): Unit = ()
    def isFinished = true
    def abort(): Unit = ()
  }

  test("every connection to a rank carries as much as the others, and a lane keeps to one of them") {
    for (topology <- Seq(new Sliced, new Ring, new Recursive); size <- Seq(2, 4)) {
      val plain = TestCodecs.plain.head
      // Four buckets that every rank owns as much of.
      val sent = ThreadGroup.run(size) { transport =>
        val noting = new Noting(transport)
        CollectiveCheck(topology, plain, plain, 64, 16, 3).run(noting)
        noting.sent.toSeq
      }
      for (channels <- 2 to 4; messages <- sent.flatMap(_.groupBy(_._1.to).values)) {
        val connections = IndexedSeq.fill(channels)(new Connection)
        val striped = new Striped(connections)
        messages.foreach { case (lane, sequence, bytes) => striped.push(lane.id, sequence, ByteBuffer.allocate(bytes)) }
        val label = s"${topology.name}, $size ranks, $channels connections: ${connections.map(_.payload)}"
        assert(connections.forall(_.payload > 0), label)
        val lanes = connections.map(_.frames.map(_._1).distinct)
        assert(lanes.flatten.distinct.size == lanes.map(_.size).sum, label)
        assert(lanes.map(_.size).max - lanes.map(_.size).min <= 1, label)
        for (connection <- connections; (_, frames) <- connection.frames.groupBy(_._1))
          assert(frames.map(_._2) == frames.map(_._2).sorted, label)
      }
    }
  }

  test("control words keep to the first connection, the last one goes by all") {
    val connections = IndexedSeq.fill(3)(new Connection)
    val striped = new Striped(connections)
    striped.push(Frame.ControlLane, 0, ByteBuffer.allocate(5))
    striped.pushLast(ByteBuffer.allocate(7))
    assert(connections.map(_.payload) == Seq(12L, 7L, 7L))
  }
}
