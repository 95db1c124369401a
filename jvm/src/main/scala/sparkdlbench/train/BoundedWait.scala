package sparkdlbench.train

import sparkdlbench.AnyOutcome

import scala.util.Try

/** A wait for what knows no bound of its own. */
private[train] object BoundedWait {

  /**
   * What came of `work`, which has a thread of its own; None where it has not ended after so long, and then it goes on there.
   *
   * @param name
   *   of the thread
   */
  def of[T](name: String, millis: Long)(work: => T): Option[Try[T]] = {
    @volatile var outcome: Option[Try[T]] = None
    val thread = new Thread(() => outcome = Some(AnyOutcome.of(work)), name)
    thread.setDaemon(true)
    thread.start()
    thread.join(math.max(1L, millis)) // 0 would be for ever
    outcome
  }
}
