package sparkdlbench.transport

import java.nio.ByteBuffer

/** A transport that adds lanes of its own to those of `inner`, through which everything goes. */
abstract class ForwardingTransport(inner: Transport) extends Transport {
  private var opened = false

  /** The lanes of its own, numbered from `first` on; asked once. */
  protected def added(first: Int): Seq[Lane]

  final def open(lanes: Seq[Lane], destination: Lane => Option[ByteBuffer]): Unit = {
    require(!opened, "lanes are opened once")
    opened = true
    inner.open(lanes ++ added(lanes.length), lane => if (lane.id < lanes.length) destination(lane) else None)
  }

  def rank: Int = inner.rank
  def size: Int = inner.size
  override def groups: RankGroups = inner.groups
  def send(lane: Lane, sequence: Long, data: ByteBuffer): Unit = inner.send(lane, sequence, data)
  def flush(): Unit = inner.flush()
  def receive(lane: Lane, sequence: Long): ByteBuffer = inner.receive(lane, sequence)
  def hasArrived(lane: Lane, sequence: Long): Boolean = inner.hasArrived(lane, sequence)
  def awaitAny(messages: IndexedSeq[(Lane, Long)]): Unit = inner.awaitAny(messages)
  override def hasLeft(peer: Int): Boolean = inner.hasLeft(peer)
  def release(lane: Lane, sequence: Long): Unit = inner.release(lane, sequence)
  def bytesSent: Map[String, Long] = inner.bytesSent
  override def facts: Map[String, String] = inner.facts
  override def close(): Unit = inner.close()
}
