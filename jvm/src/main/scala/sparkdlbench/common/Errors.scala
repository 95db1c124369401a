package sparkdlbench.common

/** What a user can fix. The message is one paragraph: what, which value, what is valid, what to do. */
sealed abstract class SparkDLException(message: String, cause: Throwable, traced: Boolean = true)
    extends RuntimeException(message, cause, true, traced)

/**
 * A wrong usage, configuration, data set or session, found before training starts, on the driver or, where only a rank can tell, by a
 * rank (exit status 2).
 */
final class ConfigurationException(message: String, cause: Throwable = null) extends SparkDLException(message, cause)

/** A run that started and could not be finished (exit status 1). */
final class RunFailedException(message: String, cause: Throwable = null) extends SparkDLException(message, cause)

/**
 * A run whose loss or weights are no numbers any more (exit status 1).
 * A task's exception reaches the driver as text, so the step, counted
 * from 1, stands in the message. It has no stack trace: executors log what tasks throw, and where in this code a loss was
 * found to be infinite says nothing to the user, who has to lower the learning rate.
 */
final class DivergedException(message: String, cause: Throwable = null)
    extends SparkDLException(message, cause, traced = false) {
  def step: Option[Long] = DivergedException.Step.findFirstMatchIn(getMessage).map(_.group(1).toLong)
}

object DivergedException {
  private val Step = """\bstep (\d+)""".r
}
