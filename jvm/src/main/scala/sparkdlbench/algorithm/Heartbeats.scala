package sparkdlbench.algorithm

import sparkdlbench.transport.{ForwardingTransport, Lane, Transport}

import java.nio.ByteBuffer

/**
 * A transport on which workers tell servers that have tasks of their own that they live, while they are about something in which servers take
 * no part, such as an evaluation: a server would wait in vain for what comes after it. Two lanes more between each worker and each server; a
 * sign is answered before the next one, 8 bytes each way, counted as payload. None is sent where that takes less than `everyNanos`.
 *
 * @param servers
 *   ranks that compute nothing
 * @param everyNanos
 *   a part of the time that ranks wait for each other
 */
private[algorithm] final class Heartbeats(inner: Transport, servers: IndexedSeq[Int], everyNanos: Long)
    extends ForwardingTransport(inner) {
  private val serves = servers.contains(rank)
  private val word = ByteBuffer.allocateDirect(java.lang.Long.BYTES)

  /** Of this rank: at a worker by server, at a server by worker. */
  private val pairs = opened()
  private var spokeAt = System.nanoTime()

  /** The two lanes between a worker and a server. */
  private final class Pair(val sign: Lane, val answer: Lane) {

    /** Signs sent; at a server, taken and answered. */
    var made = 0L
    private var answered = 0L

    def say(): Unit = {
      if (answered < made && inner.hasArrived(answer, answered)) {
        inner.receive(answer, answered)
        inner.release(answer, answered)
        answered += 1
      }
      if (answered == made) {
        inner.send(sign, made, word)
        made += 1
      }
    }

    def take(): Unit = if (inner.hasArrived(sign, made)) {
      inner.receive(sign, made)
      inner.release(sign, made)
      inner.send(answer, made, word)
      made += 1
    }
  }

  private def opened(): Map[Int, Pair] = {
    val first = inner.lanesOpened
    val ends = for (worker <- 0 until size if !servers.contains(worker); server <- servers) yield (worker, server)
    val all = ends.zipWithIndex.map { case ((worker, server), index) =>
      val sign = Lane(first + 2 * index, worker, server, word.capacity, "sign of life")
      new Pair(sign, Lane(sign.id + 1, server, worker, word.capacity, "answer to a sign of life"))
    }
    inner.open(all.flatMap(pair => Seq(pair.sign, pair.answer)), _ => None)
    all.collect {
      case pair if pair.sign.from == rank => pair.sign.to -> pair
      case pair if pair.sign.to == rank => pair.sign.from -> pair
    }.toMap
  }

  /** By a worker, as often as it likes. */
  def alive(): Unit = if (!serves && System.nanoTime() - spokeAt > everyNanos) {
    spokeAt = System.nanoTime()
    pairs.values.foreach(_.say())
  }

  /** A worker's step begins, in which it has other things to say. */
  def stepBegins(): Unit = spokeAt = System.nanoTime()

  /** Whoever has something to send to this server is there to hear an answer. Others may have left, and nothing is said to them. */
  override def receive(lane: Lane, sequence: Long): ByteBuffer = {
    if (serves) pairs.get(lane.from).foreach { pair =>
      pair.take()
      while (!inner.hasArrived(lane, sequence)) {
        inner.awaitAny(IndexedSeq((lane, sequence), (pair.sign, pair.made)))
        pair.take()
      }
    }
    inner.receive(lane, sequence)
  }
}
