package sparkdlbench.collective

import sparkdlbench.transport.{Lane, Transport}

import java.nio.{ByteBuffer, ByteOrder}

/**
 * Two lanes between rank 0 and every other rank, for messages of up to `capacity` bytes. Making it opens them: a collective
 * call.
 */
private[collective] final class StarLanes(
    transport: Transport,
    capacity: Int,
    upPurpose: String,
    downPurpose: String
) {
  private val (first, size) = (transport.lanesOpened, transport.size)

  /** To rank 0; that of rank r is number r − 1, as in `down`. */
  val up: IndexedSeq[Lane] = (1 until size).map(from => Lane(first + from - 1, from, 0, capacity, upPurpose))
  val down: IndexedSeq[Lane] = (1 until size).map(to => Lane(first + size - 1 + to - 1, 0, to, capacity, downPurpose))
  transport.open(up ++ down, _ => None)

  /** Receives a message, in the machine's byte order, and releases it after `use`. */
  def take(lane: Lane, sequence: Long)(use: ByteBuffer => Unit): Unit = {
    val message = transport.receive(lane, sequence)
    use(message.duplicate().order(ByteOrder.nativeOrder()))
    transport.release(lane, sequence)
  }
}
