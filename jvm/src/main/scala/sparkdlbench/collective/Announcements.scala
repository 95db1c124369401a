package sparkdlbench.collective

import sparkdlbench.transport.{Lane, Transport}

import java.nio.{ByteBuffer, ByteOrder}

/**
 * A number that rank 0 tells all other ranks now and then, at steps that all of them know. Nothing is sent at other steps.
 * Each of them answers, for ranks that do not train in lockstep may come to the next number long before another has read
 * this one. 16 bytes a rank and announcement, counted as payload. Making it opens lanes of its own beside those of the step:
 * a collective call.
 */
final class Announcements(transport: Transport) {
  import transport.{rank, size}
  private val word = ByteBuffer.allocateDirect(java.lang.Long.BYTES).order(ByteOrder.BIG_ENDIAN)
  private val words = {
    val first = transport.lanesOpened
    (1 until size).map(to => Lane(first + to - 1, 0, to, word.capacity, "announcement"))
  }
  private val answers =
    words.map(lane => Lane(lane.id + size - 1, lane.to, 0, word.capacity, "answer to an announcement"))
  private var sequence = 0L
  transport.open(words ++ answers, _ => None)

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
      transport.receive(lane, sequence - 2)
      transport.release(lane, sequence - 2)
    }
    transport.flush()
    word.putLong(0, number)
    words.foreach(transport.send(_, sequence, word))
    number
  }

  private def hear(): Long = {
    val lane = words(rank - 1)
    val message = transport.receive(lane, sequence)
    val number = message.duplicate().order(ByteOrder.BIG_ENDIAN).getLong(message.position())
    transport.release(lane, sequence)
    transport.flush()
    transport.send(answers(rank - 1), sequence, word)
    number
  }
}
