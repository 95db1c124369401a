package sparkdlbench.collective

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.RunFailedException
import sparkdlbench.transport.{ForwardingTransport, InMemoryConditions, Lane, ThreadGroup, Transport}

import java.nio.ByteBuffer

class LinksSuite extends AnyFunSuite {

  /** As a transport is to a rank whose peer has had all that it waited for, and has left: it takes no word for that peer any more. */
  private final class Forsaken(inner: Transport) extends ForwardingTransport(inner) {
    override def send(lane: Lane, sequence: Long, data: ByteBuffer): Unit =
      if (lane.purpose == "credit") throw new RunFailedException("could not send credit: the rank has left")
      else inner.send(lane, sequence, data)
  }

  test(
    "a rank that leaves after its last piece does not wait for the credits of what it sent, and nobody fails for them"
  ) {
    val done = ThreadGroup.run(2, InMemoryConditions()) { transport =>
      val group = Collective.open(if (transport.rank == 0) new Forsaken(transport) else transport, 64)
      group.barrier()
      true
    }
    assert(done == Seq(true, true))
  }
}
