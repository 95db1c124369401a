package sparkdlbench.worker

import sparkdlbench.common.RunFailedException
import sparkdlbench.train.{DriverRendezvous, RankMeeting, RendezvousClient}

import java.util.concurrent.{ConcurrentHashMap, TimeUnit}
import java.util.concurrent.atomic.AtomicInteger
import scala.jdk.CollectionConverters._

/** How an executor reaches the driver. */
private[sparkdlbench] trait DriverLink {
  def rendezvous: RendezvousClient

  /** One way. */
  def tell(message: WorkerMessage): Unit

  /**
   * Returns when the driver has all that was told before; fails where it does not answer within `spark.rpc.askTimeout`.
   *
   * @return
   *   false where the launch is over
   */
  def flush(request: WorkerFlush): Boolean
}

/**
 * One rank of a launch, while its Python process is connected. It ends with the connection that began it, whatever else is open for the rank
 * ends with it: so the others hear at once of a process that is gone.
 *
 * @param pid
 *   of the Python process, by its own word
 */
private[worker] final class WorkerSession(
    val launch: String,
    val attempt: Int,
    val rank: Int,
    val size: Int,
    val pid: Long,
    val host: String,
    val timeoutMillis: Long,
    val driver: DriverLink
) extends AutoCloseable {
  private val owned = ConcurrentHashMap.newKeySet[AutoCloseable]()
  private val meetings = new AtomicInteger
  @volatile private var ended = false

  /** Meetings that this rank waits in; guarded by `this`. */
  private var waitsIn = 0

  def isClosed: Boolean = ended

  def tell(kind: String, payload: String): Unit =
    driver.tell(WorkerMessage(launch, attempt, rank, host, kind, payload))

  /** Every rank's text of the launch, by rank. */
  def meet(text: String): IndexedSeq[String] =
    allGather("", meetings.incrementAndGet(), rank, size, text, timeoutMillis, isClosed)

  /**
   * The same among some ranks.
   *
   * @param group
   *   names them; the same on all of them
   * @param number
   *   counts the meetings of that group
   * @param member
   *   this rank's number in the group
   */
  def allGather(
      group: String,
      number: Int,
      member: Int,
      members: Int,
      text: String,
      millis: Long,
      isKilled: => Boolean
  ): IndexedSeq[String] = {
    val meeting = RankMeeting(launch, attempt, members, number, group)
    enter()
    val outcome =
      try DriverRendezvous.allGather(driver.rendezvous, meeting, member, text, millis, isKilled)
      finally leave()
    outcome.getOrElse(throw new RunFailedException(if (isKilled) left else late(members, millis, group))).get
  }

  private def enter(): Unit = synchronized {
    if (ended) throw new RunFailedException(left)
    waitsIn += 1
  }

  private def leave(): Unit = synchronized {
    waitsIn -= 1
    notifyAll()
  }

  private def left =
    s"The Python process of $this has ended or has closed its endpoint while it waited for other ranks."

  private def late(members: Int, millis: Long, group: String): String =
    s"$this waited ${millis / 1000} s in vain for the ${members - 1} other ranks to come as far as it is" +
      s"${if (group.isEmpty) "" else s" (group $group)"}. Look into the logs of the other executors, or give a longer timeout to the launch or the process group."

  /** Closes it with the session; at once where that is over. */
  def own(resource: AutoCloseable): Unit = {
    owned.add(resource)
    if (ended) resource.close()
  }

  def disown(resource: AutoCloseable): Unit = owned.remove(resource): Unit

  /** Returns when it has left the meetings that it waits in, so that it cannot take the text of a session after it along. */
  override def close(): Unit = {
    synchronized { ended = true }
    owned.asScala.foreach(_.close())
    val end = System.nanoTime() + TimeUnit.SECONDS.toNanos(WorkerSession.LeaveSeconds)
    synchronized {
      while (waitsIn > 0 && System.nanoTime() < end) wait(100)
    }
  }

  override def toString: String = s"rank $rank on host $host (launch $launch, attempt $attempt)"
}

private object WorkerSession {

  /** A driver that does not answer keeps a meeting from being left. */
  val LeaveSeconds = 10L
}
