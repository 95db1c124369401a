package sparkdlbench.collective

import sparkdlbench.transport.{Lane, RankGroups, Transport}

import java.nio.ByteBuffer

/**
 * Lanes numbered from 0 on, over a transport that has others already. Opened once.
 *
 * @param first
 *   the number that lane 0 has there
 */
private[collective] final class ShiftedLanes(inner: Transport, first: Int) extends Transport {
  private var lanes = Array.empty[Lane]

  def opened: Int = lanes.length

  def open(own: Seq[Lane], destination: Lane => Option[ByteBuffer]): Unit = {
    val byId = own.sortBy(_.id).toArray
    lanes = byId.map(lane => lane.copy(id = first + lane.id))
    inner.open(lanes.toVector, lane => destination(byId(lane.id - first)))
  }

  def rank: Int = inner.rank
  def size: Int = inner.size
  override def groups: RankGroups = inner.groups
  def send(lane: Lane, sequence: Long, data: ByteBuffer): Unit = inner.send(lanes(lane.id), sequence, data)
  def flush(): Unit = inner.flush()
  def receive(lane: Lane, sequence: Long): ByteBuffer = inner.receive(lanes(lane.id), sequence)
  def hasArrived(lane: Lane, sequence: Long): Boolean = inner.hasArrived(lanes(lane.id), sequence)
  def awaitAny(messages: IndexedSeq[(Lane, Long)]): Unit = inner.awaitAny(messages.map { case (lane, sequence) =>
    (lanes(lane.id), sequence)
  })
  override def hasLeft(peer: Int): Boolean = inner.hasLeft(peer)
  def release(lane: Lane, sequence: Long): Unit = inner.release(lanes(lane.id), sequence)
  def bytesSent: Map[String, Long] = inner.bytesSent
  override def facts: Map[String, String] = inner.facts

  /** The transport is its owner's to close. */
  override def close(): Unit = ()
}
