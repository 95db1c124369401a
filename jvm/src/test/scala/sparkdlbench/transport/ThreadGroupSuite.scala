package sparkdlbench.transport

import org.scalatest.funsuite.AnyFunSuite

import java.nio.ByteBuffer
import sparkdlbench.common.RunFailedException

/** The in-memory group must catch what it is there to catch, else the laws that run on it mean little. */
class ThreadGroupSuite extends AnyFunSuite {
  private val lane = Lane(0, 0, 1, 8, "test data")
  private val patient = InMemoryConditions(timeoutMillis = 3000)
  private def message(value: Long): ByteBuffer = {
    val buffer = ByteBuffer.allocateDirect(8); buffer.putLong(0, value); buffer
  }

  test("messages arrive in order, in slots or at their destination, and are counted") {
    for (seed <- Seq(None, Some(1L)); direct <- Seq(false, true)) {
      val results = ThreadGroup.run(2, InMemoryConditions(delaySeed = seed)) { transport =>
        val memory = ByteBuffer.allocateDirect(24)
        val destination = Some(memory.duplicate().position(16)).filter(_ => direct)
        transport.open(Seq(lane, Lane(1, 1, 0, 0)), _ => destination.map(_.slice().limit(8)))
        val nothing = ByteBuffer.allocateDirect(0)
        (0L until 5L).map { sequence =>
          if (transport.rank == 0) {
            transport.send(lane, sequence, message(sequence * 3))
            transport.receive(Lane(1, 1, 0, 0), sequence)
            transport.release(Lane(1, 1, 0, 0), sequence)
            transport.flush()
            transport.bytesSent("in-memory")
          } else {
            val received = transport.receive(lane, sequence).getLong(0)
            if (direct)
              assert(memory.getLong(16) == java.lang.Long.reverseBytes(received) || memory.getLong(16) == received)
            transport.release(lane, sequence)
            transport.send(Lane(1, 1, 0, 0), sequence, nothing)
            java.lang.Long.reverseBytes(received)
          }
        }
      }
      assert(results(0) == Seq(8L, 16L, 24L, 32L, 40L))
      assert(results(1) == Seq(0L, 3L, 6L, 9L, 12L))
    }
  }

  test("a lost message ends in an error that names both ranks and the purpose, within the timeout") {
    val error = intercept[RunFailedException](
      ThreadGroup.run(2, patient.copy(drops = (_, sequence) => sequence == 1))(transfer(_, 3))
    )
    assert(error.getMessage.contains("Rank 1 waited 3000 ms for test data (sequence 1) from rank 0"))
  }

  test("a rank's failure reaches the others, and the caller") {
    val start = System.nanoTime()
    val error = intercept[RunFailedException](
      ThreadGroup.run(2, InMemoryConditions(breaks = (_, sequence) => sequence == 1))(transfer(_, 3))
    )
    assert(error.getMessage.contains("rank 0 breaks"))
    assert(error.getSuppressed.exists(_.getMessage.contains("Rank 1 stops")))
    assert(System.nanoTime() - start < 15000000000L)
  }

  test("a sender that overruns two slots fails") {
    for (seed <- Seq(None, Some(7L))) {
      val error = intercept[Throwable](ThreadGroup.run(2, patient.copy(delaySeed = seed)) { transport =>
        transport.open(Seq(lane), _ => None)
        if (transport.rank == 0) (0L until 3L).foreach(sequence => transport.send(lane, sequence, message(sequence)))
        if (transport.rank == 0) transport.flush()
        else { transport.receive(lane, 0); transport.awaitAny(IndexedSeq((lane, 3L))) } // until the overrun
      })
      assert((error +: error.getSuppressed).exists(e => e.getMessage.contains("message 2 arrived")), error)
    }
  }

  test("sequences out of order fail at either end") {
    intercept[IllegalArgumentException](ThreadGroup.run(2, patient) { transport =>
      transport.open(Seq(lane), _ => None)
      if (transport.rank == 0) transport.send(lane, 1, message(1))
    })
    intercept[IllegalArgumentException](ThreadGroup.run(2, patient) { transport =>
      transport.open(Seq(lane), _ => None)
      if (transport.rank == 1) transport.receive(lane, 1)
    })
  }

  test("ranks that announce different lanes fail") {
    val error = intercept[IllegalArgumentException](
      ThreadGroup.run(2, patient)(transport => transport.open(Seq(lane.copy(capacity = 8 + transport.rank)), _ => None))
    )
    assert(error.getMessage.contains("other lanes"))
  }

  test("a rank that never ends is reported, with its stack") {
    val error = intercept[AssertionError](
      ThreadGroup.run(2, limitMillis = 2000)(transport => if (transport.rank == 1) Thread.sleep(60000))
    )
    assert(error.getMessage.contains("rank-1 still runs"))
    assert(error.getStackTrace.exists(_.getMethodName.contains("sleep")))
  }

  private def transfer(transport: Transport, messages: Int): Unit = {
    transport.open(Seq(lane), _ => None)
    (0L until messages.toLong).foreach { sequence =>
      if (transport.rank == 0) { transport.send(lane, sequence, message(sequence)); Thread.sleep(20) }
      else { transport.receive(lane, sequence); transport.release(lane, sequence) }
    }
  }
}
