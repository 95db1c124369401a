package sparkdlbench.common

import scala.util.Try

/** A wait for what knows no bound of its own. */
private[sparkdlbench] object BoundedWait {
  private val LookMillis = 20L

  /**
   * What came of `work`, which has a thread of its own; None where it has not ended after so long, or when `isKilled`, and then it goes on
   * there.
   *
   * @param name
   *   of the thread
   */
  def of[T](name: String, millis: Long, isKilled: => Boolean)(work: => T): Option[Try[T]] = {
    @volatile var outcome: Option[Try[T]] = None
    val thread = new Thread(() => outcome = Some(Outcome.of(work)), name)
    thread.setDaemon(true)
    val end = System.nanoTime() + math.max(1L, millis) * 1000000L
    thread.start()
    while (thread.isAlive && !isKilled && System.nanoTime() < end) thread.join(LookMillis)
    outcome
  }
}
