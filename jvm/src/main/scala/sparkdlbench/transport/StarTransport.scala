package sparkdlbench.transport

import java.nio.{ByteBuffer, ByteOrder}

/** A transport with two lanes more between rank 0 and every other rank, for messages of up to `capacity` bytes. */
abstract class StarTransport(inner: Transport, capacity: Int, upPurpose: String, downPurpose: String)
    extends ForwardingTransport(inner) {

  /** To rank 0; that of rank r is number r − 1, as in `down`. */
  protected var up: IndexedSeq[Lane] = IndexedSeq.empty
  protected var down: IndexedSeq[Lane] = IndexedSeq.empty

  /** Rounds made so far: the number of each lane's next message. */
  protected var sequence = 0L

  protected final def added(first: Int): Seq[Lane] = {
    up = (1 until size).map(from => Lane(first + from - 1, from, 0, capacity, upPurpose))
    down = (1 until size).map(to => Lane(first + size - 1 + to - 1, 0, to, capacity, downPurpose))
    up ++ down
  }

  /** Receives the round's message of a lane, in the machine's byte order, and releases it after `use`. */
  protected final def take(lane: Lane)(use: ByteBuffer => Unit): Unit = {
    val message = inner.receive(lane, sequence)
    use(message.duplicate().order(ByteOrder.nativeOrder()))
    inner.release(lane, sequence)
  }
}
