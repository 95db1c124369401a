package sparkdlbench.transport

import sparkdlbench.vector.{FlatBuffer, FloatOps}

/**
 * A transport with two lanes more between rank 0 and every other rank, on which the ranks average a vector now and then, at
 * steps that all of them know. Nothing is sent at other steps. 2 · (size − 1) messages of the vector's length, counted as payload.
 * Summed at rank 0 in the order of the ranks.
 *
 * @param vector
 *   this rank's values, replaced by the mean
 * @param averaged
 *   ranks whose values count: the first ones
 */
final class AveragingTransport(inner: Transport, vector: FlatBuffer, averaged: Int)
    extends StarTransport(inner, vector.length * java.lang.Float.BYTES, "statistics", "statistics") {

  /** A collective call, made at most once a step, between steps. The same bits at every rank afterwards. */
  def average(): Unit = {
    inner.flush()
    if (rank == 0) collect() else offer()
    sequence += 1
  }

  private def collect(): Unit = {
    up.filter(_.from < averaged)
      .foreach(lane => take(lane)(message => FloatOps.addInto(vector.floats, message.asFloatBuffer())))
    FloatOps.scale(vector.floats, 1f / averaged)
    down.foreach(inner.send(_, sequence, vector.bytes))
    inner.flush()
  }

  private def offer(): Unit = {
    if (rank < averaged) {
      inner.send(up(rank - 1), sequence, vector.bytes)
      inner.flush()
    }
    take(down(rank - 1))(message => FloatOps.copy(message.asFloatBuffer(), vector.floats))
  }
}
