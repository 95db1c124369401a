package sparkdlbench.collective

import sparkdlbench.transport.Transport
import sparkdlbench.vector.{FlatBuffer, FloatOps}

/**
 * The ranks' mean of a vector, made now and then, at steps that all of them know. Nothing is sent at other steps.
 * 2 · (size − 1) messages of the vector's length, counted as payload. Summed at rank 0 in the order of the ranks. Making it
 * opens lanes of its own beside those of the step: a collective call.
 *
 * @param vector
 *   this rank's values, replaced by the mean
 * @param averaged
 *   ranks whose values count: the first ones
 */
final class VectorMean(transport: Transport, vector: FlatBuffer, averaged: Int) {
  import transport.rank
  private val lanes = new StarLanes(transport, vector.length * java.lang.Float.BYTES, "statistics", "statistics")
  private var sequence = 0L

  /** A collective call, made at most once a step, between steps. The same bits at every rank afterwards. */
  def average(): Unit = {
    transport.flush()
    if (rank == 0) collect() else offer()
    sequence += 1
  }

  private def collect(): Unit = {
    lanes.up.filter(_.from < averaged).foreach { lane =>
      lanes.take(lane, sequence)(message => FloatOps.addInto(vector.floats, message.asFloatBuffer()))
    }
    FloatOps.scale(vector.floats, 1f / averaged)
    lanes.down.foreach(transport.send(_, sequence, vector.bytes))
    transport.flush()
  }

  private def offer(): Unit = {
    if (rank < averaged) {
      transport.send(lanes.up(rank - 1), sequence, vector.bytes)
      transport.flush()
    }
    lanes.take(lanes.down(rank - 1), sequence)(message => FloatOps.copy(message.asFloatBuffer(), vector.floats))
  }
}
