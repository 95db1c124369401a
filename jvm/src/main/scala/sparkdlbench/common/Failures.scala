package sparkdlbench.common

import scala.annotation.tailrec

/** Turns what Spark throws at the driver into the sentence that says what happened. */
object Failures {
  private val Ours =
    """(?s)sparkdlbench\.common\.(?:RunFailed|Configuration|Diverged)Exception: (.*?)(?:\n\tat |\nCaused by|\nDriver stacktrace|$)""".r

  def reason(cause: Throwable): String = chain(cause, Nil)
    .collectFirst { case ours: SparkDLException => ours.getMessage }
    .orElse(
      chain(cause, Nil).flatMap(e => Option(e.getMessage)).flatMap(Ours.findFirstMatchIn(_)).headOption.map(_.group(1))
    )
    .getOrElse(firstLines(cause))

  /** True where the cause is the user's to correct, so that trying again is of no use. */
  def isUsers(cause: Throwable): Boolean = chain(cause, Nil).exists { e =>
    e.isInstanceOf[ConfigurationException] || Option(e.getMessage).exists(
      _.contains("sparkdlbench.common.ConfigurationException: ")
    )
  }

  /** The divergence that it is, if it is one. */
  def diverged(cause: Throwable): Option[DivergedException] = chain(cause, Nil).collectFirst {
    case own: DivergedException => own
    case e if Option(e.getMessage).exists(_.contains("sparkdlbench.common.DivergedException: ")) =>
      new DivergedException(reason(e), cause)
  }

  @tailrec
  private def chain(cause: Throwable, seen: List[Throwable]): List[Throwable] =
    if (cause == null || seen.contains(cause)) seen.reverse else chain(cause.getCause, cause :: seen)

  private def firstLines(cause: Throwable): String = {
    val text = Option(cause.getMessage).getOrElse("")
    s"${cause.getClass.getSimpleName}: ${text.split("\n\tat ").head.linesIterator.take(3).mkString(" ")}"
  }
}
