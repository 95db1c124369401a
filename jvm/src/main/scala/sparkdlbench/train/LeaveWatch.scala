package sparkdlbench.train

import scala.util.Try

/** From rank 0 of an attempt: shall it end at a checkpoint, so that the training goes on with another number of workers? */
final case class LeaveQuestion(runId: String, attempt: Int) extends Serializable

/**
 * Asks the driver once a second, in a thread of its own, so that its answer holds up no step.
 *
 * @param ask
 *   what it answers; an exception (the driver is busy, or gone) leaves the last answer as it is
 */
private[train] final class LeaveWatch(runId: String, ask: () => Boolean) extends AutoCloseable {
  @volatile private var answer = false
  @volatile private var closed = false
  private val thread = new Thread(() => asking(), s"sparkdl-leave-$runId")
  thread.setDaemon(true)
  thread.start()

  /** Whether the attempt shall end, as of the last answer. Never waits. */
  def leaves: Boolean = answer

  private def asking(): Unit =
    try
      while (!closed) {
        Thread.sleep(LeaveWatch.PauseMillis)
        Try(ask()).foreach(answer = _)
      }
    catch { case _: InterruptedException => () }

  override def close(): Unit = {
    closed = true
    thread.interrupt()
  }
}

/**
 * Collects, at the driver, which ranks of an attempt have ended at a checkpoint. What their tasks bring back may be lost with an executor that is being
 * decommissioned, which leaves as soon as its task has ended; Spark then tries the stage again, though all that matters is in the checkpoint.
 */
private[train] final class LeftRanks(nanoTime: () => Long = () => System.nanoTime()) {
  private var attempt = -1
  private var ranks = Set.empty[Int]
  private var told: Option[(Long, Long)] = None

  /** Steps made, once all ranks of the newest attempt have ended. */
  def step: Option[Long] = told.map(_._1)

  /** Whether the stage has had its time to end by itself since then. */
  def isOverdue: Boolean = told.exists { case (_, at) => nanoTime() - at > LeaveWatch.GraceNanos }

  def receive(report: RankReport): Unit = report match {
    case left: LeftReport if left.attempt >= attempt =>
      if (left.attempt > attempt) ranks = Set.empty
      attempt = left.attempt
      ranks += left.rank
      if (ranks.size == left.ranks && told.isEmpty) told = Some((left.step, nanoTime()))
    case _ => ()
  }
}

private object LeaveWatch {
  val PauseMillis = 1000L
  val GraceNanos = 5000000000L
}
