package sparkdlbench.train

/** What the start of a run waits for, before there is a run that could say so: for whoever shows it, and to end the wait. */
private[sparkdlbench] object Waiting {
  @volatile private var text: Option[String] = None
  @volatile private var cancelRequests = 0

  /** As a user reads it; None while nothing is waited for. */
  def now: Option[String] = text

  def cancel(): Unit = synchronized(cancelRequests += 1)

  /** Within `body`, `say` tells what is waited for, and `cancelled` whether somebody has asked to end the wait. */
  def during[T](body: (String => Unit, () => Boolean) => T): T = {
    val before = cancelRequests
    try body(said => text = Some(said), () => cancelRequests != before)
    finally text = None
  }
}
