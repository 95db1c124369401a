package sparkdlbench.transport

import sparkdlbench.metrics.{Phase, PhaseTimer}

import java.nio.ByteBuffer

/**
 * A transport whose sends and waits are counted apart from the phase around them.
 *
 * @param groups
 *   the ranks that sum in memory first; another run of the same attempt may have had others than `inner` has now
 */
final class TimedTransport(inner: Transport, timer: PhaseTimer, override val groups: RankGroups) extends Transport {
  def rank: Int = inner.rank
  def size: Int = inner.size
  def open(lanes: Seq[Lane], destination: Lane => Option[ByteBuffer]): Unit = inner.open(lanes, destination)

  def send(lane: Lane, sequence: Long, data: ByteBuffer): Unit = {
    val outer = timer.switch(Phase.Send)
    inner.send(lane, sequence, data)
    timer.switch(outer)
    ()
  }

  def flush(): Unit = {
    val outer = timer.switch(Phase.Send)
    inner.flush()
    timer.switch(outer)
    ()
  }

  def receive(lane: Lane, sequence: Long): ByteBuffer = {
    val outer = timer.switch(Phase.Wait)
    val received = inner.receive(lane, sequence)
    timer.switch(outer)
    received
  }

  def hasArrived(lane: Lane, sequence: Long): Boolean = inner.hasArrived(lane, sequence)

  def awaitAny(messages: IndexedSeq[(Lane, Long)]): Unit = {
    val outer = timer.switch(Phase.Wait)
    inner.awaitAny(messages)
    timer.switch(outer)
    ()
  }

  def release(lane: Lane, sequence: Long): Unit = inner.release(lane, sequence)
  def bytesSent: Map[String, Long] = inner.bytesSent
  override def facts: Map[String, String] = inner.facts
  override def close(): Unit = inner.close()
}
