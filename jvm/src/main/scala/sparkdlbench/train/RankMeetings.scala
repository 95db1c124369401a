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

/** What a rank tells the driver in a meeting. */
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
 * The driver's end of the ranks' all-gathers, one a meeting: it holds the ranks' texts until all have them; the plugin's RPC end answers
 * from here. No answer waits for another rank: Spark has one thread for the messages of all plugins.
 *
 * A meeting is forgotten once all ranks have read it or have left, when a rank of a later attempt comes, and with the submission of the stage.
 */
object RankMeetings {
  private val runs = new ConcurrentHashMap[String, RunMeetings]()

  /**
   * From now on ranks of this run may meet.
   *
   * @param attempt
   *   the first that may: of earlier ones there may be tasks that have not heard of their end
   */
  def open(runId: String, attempt: Int): Unit = runs.put(runId, new RunMeetings(attempt)): Unit

  def close(runId: String): Unit = runs.remove(runId): Unit

  /** Whether the ranks that train now shall end at a checkpoint (`LeaveQuestion`). Each submission of the run begins with no. */
  def leave(runId: String, leaves: Boolean): Unit = Option(runs.get(runId)).foreach(_.leaves = leaves)

  /** The driver's answer. */
  def answer(question: LeaveQuestion): Boolean =
    Option(runs.get(question.runId)).exists(run => run.leaves && question.attempt >= run.first)

  /**
   * All texts, by rank; none while somebody is missing; null where nobody meets any more, and to a rank that leaves. Of the JDK's types,
   * because Spark's RPC does not find this package's classes in an executor that has them by `spark.jars`.
   */
  def answer(message: MeetingMessage): Array[String] =
    Option(runs.get(message.meeting.runId)).flatMap(_.answer(message)).orNull

  /** Meetings of a run that are not over. */
  private[train] def meetings(runId: String): Int = Option(runs.get(runId)).fold(0)(_.size)
}

/** Those of one run, of its newest attempt alone. */
private final class RunMeetings(val first: Int) {
  @volatile var leaves = false
  private var attempt = first
  private val gathers = mutable.Map.empty[(String, Int), AllGather]

  /** Ranks' visits that are over; a text of one that comes after its end is nobody's. */
  private val left = mutable.LinkedHashSet.empty[(Int, Long)]

  def size: Int = synchronized(gathers.size)

  /** As `RankMeetings.answer`. */
  def answer(message: MeetingMessage): Option[Array[String]] = synchronized {
    val meeting = message.meeting
    if (meeting.attempt > attempt) {
      attempt = meeting.attempt
      gathers.clear()
      left.clear()
    }
    if (meeting.attempt < attempt) None else heard(message, (meeting.group, meeting.number))
  }

  private def heard(message: MeetingMessage, number: (String, Int)): Option[Array[String]] = message match {
    case MeetingText(_, rank, visit, _) if left.contains((rank, visit)) => None
    case MeetingText(meeting, rank, visit, text) =>
      gathers.getOrElseUpdate(number, new AllGather(meeting.ranks)).put(rank, visit, text)
      read(number, rank, visit)
    case MeetingPoll(_, rank, visit) => read(number, rank, visit)
    case MeetingLeft(_, rank, visit) =>
      left += rank -> visit
      if (left.size > RunMeetings.MostLeft) left -= left.head
      gathers.get(number).foreach(_.remove(rank, visit))
      forgetWhereDone(number)
      None
  }

  private def read(number: (String, Int), rank: Int, visit: Long): Option[Array[String]] = {
    val texts = gathers.get(number).flatMap(_.read(rank, visit))
    forgetWhereDone(number)
    texts
  }

  private def forgetWhereDone(number: (String, Int)): Unit =
    if (gathers.get(number).exists(_.isDone)) gathers -= number: Unit
}

private object RunMeetings {

  /** A text comes later than its end by seconds, so few are enough. */
  val MostLeft = 10000
}

/** The texts of one meeting, and who has read them. */
private final class AllGather(ranks: Int) {
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
