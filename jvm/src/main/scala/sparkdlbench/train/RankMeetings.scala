package sparkdlbench.train

import java.util.concurrent.ConcurrentHashMap
import scala.collection.mutable

/**
 * A meeting of all ranks of an attempt.
 *
 * @param number
 *   counts the meetings of the attempt, or of the group
 * @param group
 *   names some ranks of the run that meet without the others; empty: all
 */
final case class RankMeeting(runId: String, attempt: Int, ranks: Int, number: Int, group: String = "")

/** What a rank tells the driver's board of a meeting. */
sealed trait MeetingMessage extends Serializable {
  def meeting: RankMeeting
  def rank: Int
}

/** A rank comes, with its text. */
final case class MeetingText(meeting: RankMeeting, rank: Int, text: String) extends MeetingMessage {

  /** Spark logs messages, and a text may say what only the group shall know, such as the number of a mailbox. */
  override def toString: String = s"MeetingText($meeting,$rank)"
}

/** A rank that has come asks again: the text goes over the wire once. */
final case class MeetingPoll(meeting: RankMeeting, rank: Int) extends MeetingMessage

/** A rank that has not met the others waits no longer. */
final case class MeetingLeft(meeting: RankMeeting, rank: Int) extends MeetingMessage

/**
 * The driver's boards, one a meeting, on which the ranks of a one-stage run leave their texts for each other; the plugin's RPC end answers
 * from here. No answer waits for another rank: Spark has one thread for the messages of all plugins.
 *
 * A board is forgotten once all ranks have read it or have left, when a rank of a later attempt comes, and with the submission of the stage.
 */
object RankMeetings {
  private val runs = new ConcurrentHashMap[String, RunBoards]()

  /**
   * From now on ranks of this run may meet.
   *
   * @param attempt
   *   the first that may: of earlier ones there may be tasks that have not heard of their end
   */
  def open(runId: String, attempt: Int): Unit = runs.put(runId, new RunBoards(attempt)): Unit

  def close(runId: String): Unit = runs.remove(runId): Unit

  /**
   * All texts, by rank; none while somebody is missing; null where nobody meets any more, and to a rank that leaves. Of the JDK's types,
   * because Spark's RPC does not find this package's classes in an executor that has them by `spark.jars`.
   */
  def answer(message: MeetingMessage): Array[String] =
    Option(runs.get(message.meeting.runId)).flatMap(_.answer(message)).orNull

  /** Meetings of a run that are not over. */
  private[train] def boards(runId: String): Int = Option(runs.get(runId)).fold(0)(_.size)
}

/** Those of one run, of its newest attempt alone. */
private final class RunBoards(first: Int) {
  private var attempt = first
  private val boards = mutable.Map.empty[(String, Int), Board]

  def size: Int = synchronized(boards.size)

  /** As `RankMeetings.answer`. */
  def answer(message: MeetingMessage): Option[Array[String]] = synchronized {
    val meeting = message.meeting
    if (meeting.attempt > attempt) {
      attempt = meeting.attempt
      boards.clear()
    }
    if (meeting.attempt < attempt) None else heard(message, (meeting.group, meeting.number))
  }

  private def heard(message: MeetingMessage, number: (String, Int)): Option[Array[String]] = message match {
    case MeetingText(meeting, rank, text) =>
      boards.getOrElseUpdate(number, new Board(meeting.ranks)).put(rank, text)
      read(number, rank)
    case MeetingPoll(_, rank) => read(number, rank)
    case MeetingLeft(_, rank) =>
      boards.get(number).foreach(_.remove(rank))
      forgetWhereDone(number)
      None
  }

  private def read(number: (String, Int), rank: Int): Option[Array[String]] = {
    val texts = boards.get(number).map(_.read(rank))
    forgetWhereDone(number)
    texts
  }

  private def forgetWhereDone(number: (String, Int)): Unit =
    if (boards.get(number).exists(_.isDone)) boards -= number: Unit
}

/** The texts of one meeting, and who has read them. */
private final class Board(ranks: Int) {
  private val texts = mutable.Map.empty[Int, String]
  private val readers = mutable.Set.empty[Int]

  def put(rank: Int, text: String): Unit = texts(rank) = text

  /** Whoever comes later must not go on with a rank that is gone. */
  def remove(rank: Int): Unit = texts -= rank: Unit

  /** None while somebody is missing. */
  def read(rank: Int): Array[String] =
    if (texts.size < ranks) Array.empty[String]
    else {
      readers += rank
      Array.tabulate(ranks)(texts)
    }

  def isDone: Boolean = texts.isEmpty || readers.size == ranks
}
