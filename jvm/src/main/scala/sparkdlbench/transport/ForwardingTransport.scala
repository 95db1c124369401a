package sparkdlbench.transport

import sparkdlbench.vector.VectorPart

import java.nio.ByteBuffer

/** A transport through which everything goes to `inner`, for the few that look on or change how ranks wait. */
abstract class ForwardingTransport(inner: Transport) extends Transport {
  def rank: Int = inner.rank
  def size: Int = inner.size
  override def groups: RankGroups = inner.groups
  def lanesOpened: Int = inner.lanesOpened
  def open(lanes: Seq[Lane], destination: Lane => Option[ByteBuffer], part: Lane => Option[VectorPart]): Unit =
    inner.open(lanes, destination, part)
  override def redirect(lane: Lane, destination: ByteBuffer): Boolean = inner.redirect(lane, destination)
  def send(lane: Lane, sequence: Long, data: ByteBuffer): Unit = inner.send(lane, sequence, data)
  def flush(): Unit = inner.flush()
  override def awaitReads(): Unit = inner.awaitReads()
  def receive(lane: Lane, sequence: Long): ByteBuffer = inner.receive(lane, sequence)
  def hasArrived(lane: Lane, sequence: Long): Boolean = inner.hasArrived(lane, sequence)
  def awaitAny(messages: IndexedSeq[(Lane, Long)]): Unit = inner.awaitAny(messages)
  override def hasLeft(peer: Int): Boolean = inner.hasLeft(peer)
  def release(lane: Lane, sequence: Long): Unit = inner.release(lane, sequence)
  def bytesSent: Map[String, Long] = inner.bytesSent
  override def facts: Map[String, String] = inner.facts
  override def close(): Unit = inner.close()
}
