package sparkdlbench.worker

import sparkdlbench.common.{ConfigurationException, Json}
import sparkdlbench.train.RankMeetings

import java.util.concurrent.{ConcurrentHashMap, TimeUnit}
import scala.collection.immutable.ListMap
import scala.collection.mutable
import scala.jdk.CollectionConverters._

/**
 * What a rank of a launch tells the driver.
 *
 * @param kind
 *   in the words of who reads it
 * @param payload
 *   a JSON object
 */
final case class WorkerMessage(launch: String, attempt: Int, rank: Int, host: String, kind: String, payload: String)
    extends Serializable {

  /** Spark logs messages, and a payload is the user's. */
  override def toString: String = s"WorkerMessage($launch,$attempt,$rank,$host,$kind)"
}

/** A rank wants to know that the driver has all that it told before, or its executor whether the launch goes on. */
final case class WorkerFlush(launch: String) extends Serializable

/**
 * The driver's end of the launches that go on: their messages, and the rendezvous where their ranks meet. The plugin's RPC end
 * delivers here.
 */
object Launches {
  private val boxes = new ConcurrentHashMap[String, LetterBox]()

  /** From now on ranks of this launch may meet and tell. */
  def open(launch: String): Unit = {
    if (launch.isEmpty || boxes.putIfAbsent(launch, new LetterBox(launch)) != null)
      throw new ConfigurationException(s"There is a launch '$launch' already. Give each launch an id of its own.")
    RankMeetings.open(launch, attempt = 0)
  }

  /** False where the launch is over. */
  def deliver(message: WorkerMessage): Boolean = Option(boxes.get(message.launch)).exists { box =>
    box.put(message)
    true
  }

  /** JSON list of what has come since the last call; waits up to `millis` for the first. Empty too where the launch is over. */
  def messages(launch: String, millis: Long): String =
    Json.line(Option(boxes.get(launch)).fold(List.empty[Any])(_.take(millis)))

  /** What comes later is dropped, and whoever still wants to meet fails. */
  def close(launch: String): Unit = {
    boxes.remove(launch)
    RankMeetings.close(launch)
  }

  /** Whether it goes on. */
  def isOpen(launch: String): Boolean = boxes.containsKey(launch)

  /** Of launches that are not closed. */
  private[worker] def open: Seq[String] = boxes.keySet.asScala.toList
}

/**
 * Messages of one launch that the driver has not read yet. What does not fit is dropped, counted by rank, and told as a message of its own;
 * the first one of each kind of a rank finds room in any case, so that what it prints cannot crowd out how it ended.
 */
private[worker] final class LetterBox(
    launch: String,
    mostMessages: Int = LetterBox.MostMessages,
    mostChars: Long = LetterBox.MostChars
) {
  private val waiting = mutable.Queue.empty[WorkerMessage]
  private val dropped = mutable.LinkedHashMap.empty[Int, (WorkerMessage, Long)]
  private val told = mutable.HashSet.empty[(Int, String)]
  private var chars = 0L

  def put(message: WorkerMessage): Unit = synchronized {
    val isFirst = told.size < mostMessages && told.add((message.rank, message.kind))
    if (isFirst || waiting.size < mostMessages && chars + message.payload.length <= mostChars) {
      waiting.enqueue(message): Unit
      chars += message.payload.length
    } else dropped(message.rank) = (message, dropped.get(message.rank).fold(0L)(_._2) + 1)
    notifyAll()
  }

  def take(millis: Long): List[Any] = synchronized {
    val end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(millis)
    var left = millis
    while (waiting.isEmpty && left > 0) {
      wait(left)
      left = TimeUnit.NANOSECONDS.toMillis(end - System.nanoTime())
    }
    val taken = waiting.toList.map(LetterBox.described)
    val lost = dropped.values.toList.map { case (last, count) =>
      LetterBox.described(last.copy(kind = LetterBox.Dropped, payload = Json.line(ListMap("count" -> count))))
    }
    waiting.clear()
    dropped.clear()
    chars = 0
    taken ++ lost
  }

  override def toString: String = s"LetterBox($launch)"
}

private[worker] object LetterBox {
  val MostMessages = 20000
  val MostChars: Long = 32L << 20

  /** The kind of the message that tells how many others were dropped. */
  val Dropped = "dropped"

  private def described(message: WorkerMessage): ListMap[String, Any] = ListMap(
    "rank" -> message.rank,
    "host" -> message.host,
    "attempt" -> message.attempt,
    "kind" -> message.kind,
    "payload" -> Json.read(message.payload)
  )
}
