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

  /** Of one coming of the rank alone: its messages may overtake each other, and those of an earlier process of the same rank come late. */
  def visit: Long
}

/** A rank comes, with its text. */
final case class MeetingText(meeting: RankMeeting, rank: Int, visit: Long, text: String) extends MeetingMessage {

  /** Spark logs messages, and a text may say what only the group shall know, such as the number of a mailbox. */
  override def toString: String = s"MeetingText($meeting,$rank)"
}

/** A rank that has come asks again: the text goes over the wire once. */
final case class MeetingPoll(meeting: RankMeeting, rank: Int, visit: Long) extends MeetingMessage

/** A rank that has not met the others waits no longer. */
final case class MeetingLeft(meeting: RankMeeting, rank: Int, visit: Long) extends MeetingMessage

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

  /** Ranks' visits that are over; a text of one that comes after its end is nobody's. */
  private val left = mutable.LinkedHashSet.empty[(Int, Long)]

  def size: Int = synchronized(boards.size)

  /** As `RankMeetings.answer`. */
  def answer(message: MeetingMessage): Option[Array[String]] = synchronized {
    val meeting = message.meeting
    if (meeting.attempt > attempt) {
      attempt = meeting.attempt
      boards.clear()
      left.clear()
    }
    if (meeting.attempt < attempt) None else heard(message, (meeting.group, meeting.number))
  }

  private def heard(message: MeetingMessage, number: (String, Int)): Option[Array[String]] = message match {
    case MeetingText(_, rank, visit, _) if left.contains((rank, visit)) => None
    case MeetingText(meeting, rank, visit, text) =>
      boards.getOrElseUpdate(number, new Board(meeting.ranks)).put(rank, visit, text)
      read(number, rank, visit)
    case MeetingPoll(_, rank, visit) => read(number, rank, visit)
    case MeetingLeft(_, rank, visit) =>
      left += rank -> visit
      if (left.size > RunBoards.MostLeft) left -= left.head
      boards.get(number).foreach(_.remove(rank, visit))
      forgetWhereDone(number)
      None
  }

  private def read(number: (String, Int), rank: Int, visit: Long): Option[Array[String]] = {
    val texts = boards.get(number).flatMap(_.read(rank, visit))
    forgetWhereDone(number)
    texts
  }

  private def forgetWhereDone(number: (String, Int)): Unit =
    if (boards.get(number).exists(_.isDone)) boards -= number: Unit
}

private object RunBoards {

  /** A text comes later than its end by seconds, so few are enough. */
  val MostLeft = 10000
}

/** The texts of one meeting, and who has read them. */
private final class Board(ranks: Int) {
  private val texts = mutable.Map.empty[Int, (Long, String)]
  private val readers = mutable.Set.empty[Int]

  def put(rank: Int, visit: Long, text: String): Unit = texts(rank) = (visit, text)

  /** Whoever comes later must not go on with a rank that is gone. */
  def remove(rank: Int, visit: Long): Unit = if (isOf(rank, visit)) texts -= rank: Unit

  /** Empty while somebody is missing; None where another visit of the rank has taken this one's place. */
  def read(rank: Int, visit: Long): Option[Array[String]] =
    if (!isOf(rank, visit)) None
    else if (texts.size < ranks) Some(Array.empty[String])
    else {
      readers += rank
      Some(Array.tabulate(ranks)(texts(_)._2))
    }

  private def isOf(rank: Int, visit: Long): Boolean = texts.get(rank).exists(_._1 == visit)

  def isDone: Boolean = texts.isEmpty || readers.size == ranks
}
