package sparkdlbench.transport

import java.nio.{ByteBuffer, ByteOrder}

/**
 * A transport with a lane more from rank 0 to every other rank, on which rank 0 tells them a number now and then, at steps
 * that all of them know. Nothing is sent at other steps. Each of them answers, for ranks that do not train in lockstep may come to
 * the next number long before another has read this one. 16 bytes a rank and announcement, counted as payload.
 */
final class AnnouncingTransport(inner: Transport) extends ForwardingTransport(inner) {
  private var words: IndexedSeq[Lane] = IndexedSeq.empty
  private var answers: IndexedSeq[Lane] = IndexedSeq.empty
  private var sequence = 0L
  private val word = ByteBuffer.allocateDirect(java.lang.Long.BYTES).order(ByteOrder.BIG_ENDIAN)

  protected def added(first: Int): Seq[Lane] = {
    words = (1 until size).map(to => Lane(first + to - 1, 0, to, word.capacity, "announcement"))
    answers = words.map(lane => Lane(lane.id + size - 1, lane.to, 0, word.capacity, "answer to an announcement"))
    words ++ answers
  }

  /**
   * A collective call, made at most once a step, between steps.
   *
   * @param decide
   *   asked at rank 0 alone
   * @return
   *   rank 0's number, at every rank
   */
  def announced(decide: => Long): Long = {
    val told = if (rank == 0) tell(decide) else hear()
    sequence += 1
    told
  }

  private def tell(number: Long): Long = {
    // Two messages of a lane may be under way.
    if (sequence >= 2) answers.foreach { lane =>
      inner.receive(lane, sequence - 2)
      inner.release(lane, sequence - 2)
    }
    inner.flush()
    word.putLong(0, number)
    words.foreach(inner.send(_, sequence, word))
    number
  }

  private def hear(): Long = {
    val lane = words(rank - 1)
    val message = inner.receive(lane, sequence)
    val number = message.duplicate().order(ByteOrder.BIG_ENDIAN).getLong(message.position())
    inner.release(lane, sequence)
    inner.flush()
    inner.send(answers(rank - 1), sequence, word)
    number
  }
}
