package sparkdlbench.transport.ucx

import org.openucx.jucx.UcxException
import sparkdlbench.OnOneLine
import sparkdlbench.transport.push.{Mailbox, StreamId}
import sparkdlbench.transport.tcp.Handshake

import java.nio.ByteBuffer
import scala.collection.mutable

/** The handshake alone, with messages that travel when the test says so. */
class UcxHandshakesSuite extends OnOneLine {
  private val inbox = StreamId.inboxNumber("ucx-handshakes-suite")
  private val stream = StreamId(inbox, 0, 1)
  private val foreign = new Handshake(Array.fill[Byte](32)(7))

  /** The handshakes of ranks 0 and 1, and what is on its way between them: receiver, kind, bytes. */
  private class BothRanks {
    val mail = mutable.ArrayBuffer.empty[(Int, Int, Array[Byte])]
    val admitted = mutable.ArrayBuffer.empty[Long]
    var reachable = true
    private def tell(to: Int, kind: Int, bytes: Array[Byte]): Unit = {
      if (!reachable) throw new UcxException("Destination is unreachable")
      mail += ((to, kind, bytes)): Unit
    }
    val handshakes: IndexedSeq[UcxHandshakes] = (0 to 1).map { rank =>
      val own = new Handshake(Array.fill[Byte](32)(1))
      new UcxHandshakes(rank, 2, tell(_, _, _), own, (number, _, _) => admitted += number: Unit)
    }

    /** The first of what is on its way arrives. */
    def deliver(): Unit = {
      val (to, kind, bytes) = mail.remove(0)
      handshakes(to).receive(kind, ByteBuffer.wrap(bytes))
    }

    def deliverAll(): Unit = while (mail.nonEmpty) deliver()

    /** So many strangers greet rank 1 in the name of rank 0, and say no more. */
    def crowd(strangers: Int): Unit = {
      val before = mail.size
      for (_ <- 0 until strangers)
        handshakes(1).receive(UcxHandshakes.Hello, ByteBuffer.wrap(foreign.hello(stream, 0, 1)))
      mail.remove(before, mail.size - before)
    }
  }

  private def meeting(body: BothRanks => Unit): Unit = {
    val mailbox = Mailbox.open(inbox, 1)
    try body(new BothRanks)
    finally mailbox.close()
  }

  test("a greeting that strangers have crowded out is answered when it comes again") {
    meeting { both =>
      val entry = both.handshakes(0).entry(stream)
      both.handshakes(0).greet(entry)
      both.deliver()
      both.crowd(UcxHandshakes.MaxStrangers + 2)
      both.deliverAll()
      assert(!entry.done.isDone && both.handshakes(1).refused == 1, "its proof came too late")
      both.handshakes(0).greet(entry)
      both.crowd(UcxHandshakes.MaxStrangers / 2)
      both.deliverAll()
      assert(both.admitted.toSeq == Seq(entry.done.get))
    }
  }

  test("who greets more than once before the answer has one stream, and nothing of it is refused") {
    meeting { both =>
      val entry = both.handshakes(0).entry(stream)
      for (_ <- 0 until 3) both.handshakes(0).greet(entry)
      both.deliverAll()
      assert(both.admitted.toSeq == Seq(entry.done.get) && both.handshakes.forall(_.refused == 0))
      both.handshakes(0).greet(entry)
      assert(both.mail.isEmpty, "it is there already")
    }
  }

  test("a greeting in the name of a rank to which there is no way is refused, and fails nothing") {
    meeting { both =>
      both.reachable = false
      both.crowd(3)
      assert(both.handshakes(1).refused == 3)
      both.reachable = true
      val entry = both.handshakes(0).entry(stream)
      both.handshakes(0).greet(entry)
      both.deliverAll()
      assert(both.admitted.toSeq == Seq(entry.done.get))
    }
  }

  test("a stream that nobody waits for any more does not begin") {
    meeting { both =>
      val entry = both.handshakes(0).entry(stream)
      both.handshakes(0).greet(entry)
      both.handshakes(0).forget(entry)
      both.deliverAll()
      assert(!entry.done.isDone && both.admitted.isEmpty && both.handshakes(0).refused == 1)
    }
  }
}
