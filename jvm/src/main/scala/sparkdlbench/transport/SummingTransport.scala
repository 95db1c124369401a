package sparkdlbench.transport

import java.nio.{ByteBuffer, ByteOrder}

/**
 * A transport with two lanes more between rank 0 and every other rank, on which the ranks sum a few numbers when all of them
 * call for it, as often as they like. Each sum is 2 · (size − 1) messages of 8 bytes a number, counted as payload; made at rank 0 in
 * the order of the ranks, in double precision.
 *
 * @param most
 *   numbers that a sum has at most
 */
final class SummingTransport(inner: Transport, most: Int)
    extends StarTransport(inner, most * java.lang.Double.BYTES, "numbers to sum", "sums") {
  private val image = ByteBuffer.allocateDirect(most * java.lang.Double.BYTES).order(ByteOrder.nativeOrder())
  private val numbers = image.asDoubleBuffer()

  /** Sums made so far. */
  def made: Long = sequence

  /** A collective call. @param own this rank's numbers, replaced by the sums: the same bits at every rank */
  def sum(own: Array[Double]): Unit = if (size > 1) {
    require(own.length <= most, s"${own.length} numbers, at most $most")
    inner.flush()
    if (rank == 0) up.foreach(lane => take(lane)(eachOf(_)((i, value) => own(i) += value)))
    image.clear().limit(own.length * java.lang.Double.BYTES)
    numbers.put(0, own)
    if (rank == 0) down.foreach(inner.send(_, sequence, image))
    else {
      inner.send(up(rank - 1), sequence, image)
      inner.flush()
      take(down(rank - 1))(eachOf(_)((i, value) => own(i) = value))
    }
    sequence += 1
  }

  private def eachOf(message: ByteBuffer)(use: (Int, Double) => Unit): Unit = {
    val values = message.asDoubleBuffer()
    (0 until values.remaining).foreach(i => use(i, values.get(i)))
  }
}
