package sparkdlbench.collective

import sparkdlbench.transport.Transport

import java.nio.{ByteBuffer, ByteOrder}

/**
 * Sums of a few numbers over the ranks, made when all of them call for it, as often as they like. Each sum is
 * 2 · (size − 1) messages of 8 bytes a number, counted as payload; made at rank 0 in the order of the ranks, in double
 * precision. Making it opens lanes of its own beside those of the step: a collective call.
 *
 * @param most
 *   numbers that a sum has at most
 */
final class NumberSums(transport: Transport, most: Int) {
  import transport.{rank, size}
  private val lanes = new StarLanes(transport, most * java.lang.Double.BYTES, "numbers to sum", "sums")
  private val image = ByteBuffer.allocateDirect(most * java.lang.Double.BYTES).order(ByteOrder.nativeOrder())
  private val numbers = image.asDoubleBuffer()
  private var sequence = 0L

  /** Sums made so far. */
  def made: Long = sequence

  /** A collective call. @param own this rank's numbers, replaced by the sums: the same bits at every rank */
  def sum(own: Array[Double]): Unit = if (size > 1) {
    require(own.length <= most, s"${own.length} numbers, at most $most")
    transport.flush()
    if (rank == 0) lanes.up.foreach(lanes.take(_, sequence)(eachOf(_)((i, value) => own(i) += value)))
    image.clear().limit(own.length * java.lang.Double.BYTES)
    numbers.put(0, own)
    if (rank == 0) lanes.down.foreach(transport.send(_, sequence, image))
    else {
      transport.send(lanes.up(rank - 1), sequence, image)
      transport.flush()
      lanes.take(lanes.down(rank - 1), sequence)(eachOf(_)((i, value) => own(i) = value))
    }
    sequence += 1
  }

  private def eachOf(message: ByteBuffer)(use: (Int, Double) => Unit): Unit = {
    val values = message.asDoubleBuffer()
    (0 until values.remaining).foreach(i => use(i, values.get(i)))
  }
}
