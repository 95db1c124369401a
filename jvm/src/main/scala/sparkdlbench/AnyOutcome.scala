package sparkdlbench

import scala.util.{Failure, Success, Try}

/** How a thread's work ended, for the thread that waits for it. */
private[sparkdlbench] object AnyOutcome {

  /** As `Try`, but with what that lets through, such as a missing class: whoever waits must not wait for ever because of it. */
  def of[T](work: => T): Try[T] =
    try Success(work)
    catch { case cause: Throwable => Failure(cause) }
}
