package sparkdlbench.common

import scala.util.{Failure, Success, Try}

/** How work ended, for whoever waits for it, or must clear up after it. */
private[sparkdlbench] object Outcome {

  /** As `Try`, but with what that lets through, such as a missing class: whoever waits must not wait for ever because of it. */
  def of[T](work: => T): Try[T] =
    try Success(work)
    catch { case cause: Throwable => Failure(cause) }

  /**
   * Does all of `ends`, whatever became of `outcome` and of the others, and returns what `outcome` holds. What failed first is thrown, and
   * what failed after it is suppressed in it: thrown from a `finally`, it would hide why the work failed.
   */
  def after[T](outcome: Try[T])(ends: (() => Unit)*): T = {
    val failures = outcome.failed.toOption.toSeq ++ ends.map(end => of(end())).flatMap(_.failed.toOption)
    failures.headOption.foreach { first =>
      failures.filter(_ ne first).foreach(first.addSuppressed)
      throw first
    }
    outcome.get
  }
}
