package sparkdlbench.transport

import sparkdlbench.metrics.{Phase, PhaseTimer}

import java.nio.ByteBuffer

/**
 * A transport whose sends and waits are counted apart from the phase around them.
 *
 * @param groups
 *   the ranks that sum in memory first; another run of the same attempt may have had others than `inner` has now
 */
final class TimedTransport(inner: Transport, timer: PhaseTimer, override val groups: RankGroups)
    extends ForwardingTransport(inner) {

  override def send(lane: Lane, sequence: Long, data: ByteBuffer): Unit = {
    val outer = timer.switch(Phase.Send)
    inner.send(lane, sequence, data)
    timer.switch(outer)
    ()
  }

  override def flush(): Unit = {
    val outer = timer.switch(Phase.Send)
    inner.flush()
    timer.switch(outer)
    ()
  }

  override def awaitReads(): Unit = {
    val outer = timer.switch(Phase.Wait)
    inner.awaitReads()
    timer.switch(outer)
    ()
  }

  override def receive(lane: Lane, sequence: Long): ByteBuffer = {
    val outer = timer.switch(Phase.Wait)
    val received = inner.receive(lane, sequence)
    timer.switch(outer)
    received
  }

  override def awaitAny(messages: IndexedSeq[(Lane, Long)]): Unit = {
    val outer = timer.switch(Phase.Wait)
    inner.awaitAny(messages)
    timer.switch(outer)
    ()
  }
}
