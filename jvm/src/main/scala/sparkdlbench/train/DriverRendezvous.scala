package sparkdlbench.train

import sparkdlbench.common.{BoundedWait, RunFailedException}

import java.util.concurrent.{ThreadLocalRandom, TimeoutException}
import scala.annotation.tailrec
import scala.util.Try

/** How a rank reaches the driver's rendezvous. */
private[sparkdlbench] trait RendezvousClient {

  /** The answer of `RankMeetings`; a TimeoutException where there is none within `spark.rpc.askTimeout`. */
  def ask(message: MeetingMessage): Array[String]

  /** One way. */
  def tell(message: MeetingLeft): Unit
}

/**
 * The ranks' all-gather of texts through the driver, where the session has the plugin. Spark's own would do, but its tasks look for
 * the answer once a second.
 *
 * Ranks ask until all have come, rather than be answered then: for that the driver would need an RPC end of Spark's private API. A rank asks
 * once with its text and then after pauses that grow, so within the first 62 ms five times more.
 */
private[sparkdlbench] object DriverRendezvous {
  private val FirstPauseMillis = 2L
  private val LongestPauseMillis = 50L

  /**
   * What came of the meeting, every rank's text by rank; None where `millis` or the task were over before. Who has not met leaves the meeting,
   * and then nobody meets who has not yet.
   */
  def allGather(
      client: RendezvousClient,
      meeting: RankMeeting,
      rank: Int,
      text: String,
      millis: Long,
      isKilled: => Boolean
  ): Option[Try[IndexedSeq[String]]] = {
    val visit = ThreadLocalRandom.current().nextLong()
    @volatile var over = false
    var met = false
    try {
      // In a thread of its own, because a question to a driver that is busy lasts longer than the rank has time.
      val outcome = BoundedWait.of(s"sparkdl-meeting-${meeting.runId}-$rank", millis, isKilled)(
        asked(client, meeting, rank, visit, text, over, Thread.sleep(_))
      )
      met = outcome.exists(_.isSuccess)
      outcome
    } finally {
      over = true
      if (!met)
        Try(client.tell(MeetingLeft(meeting, rank, visit))): Unit // the driver may be gone, and with it the meeting
    }
  }

  /**
   * @param visit
   *   as in `MeetingMessage`
   * @param isOver
   *   nobody waits for the texts any more
   * @param pause
   *   for so many milliseconds
   */
  private[train] def asked(
      client: RendezvousClient,
      meeting: RankMeeting,
      rank: Int,
      visit: Long,
      text: String,
      isOver: => Boolean,
      pause: Long => Unit
  ): IndexedSeq[String] = {
    val longest = longestPause(meeting.ranks)
    @tailrec
    def from(message: MeetingMessage, pauseMillis: Long): IndexedSeq[String] = {
      if (isOver) throw new CancelledException
      val texts = answer(client, message)
      if (texts == null)
        throw new RunFailedException(
          s"Rank $rank came to meeting ${meeting.number} of an attempt of the training that was over."
        )
      else if (texts.nonEmpty) texts.toIndexedSeq
      else {
        pause(pauseMillis)
        from(MeetingPoll(meeting, rank, visit), math.min(2 * pauseMillis, longest))
      }
    }
    from(MeetingText(meeting, rank, visit, text), FirstPauseMillis)
  }

  /** Many ranks ask less often, so that the driver hears at most 500 questions a second while they wait. */
  private def longestPause(ranks: Int): Long = math.max(LongestPauseMillis, 2L * ranks)

  private def answer(client: RendezvousClient, message: MeetingMessage): Array[String] =
    try client.ask(message)
    catch {
      case late: TimeoutException =>
        throw new RunFailedException(
          s"The driver did not answer rank ${message.rank}, which is to meet the other ranks, within spark.rpc.askTimeout: it is too busy, or another " +
            "plugin of the session keeps it. Give the driver more memory and processor time, or raise spark.rpc.askTimeout.",
          late
        )
    }
}
