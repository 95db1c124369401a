package sparkdlbench.train

import scala.util.Try

/**
 * Ends the Spark jobs of a run whose session has had no slot at all for too long: a job without an executor waits for one for ever. For the
 * shape of a job per step, whose jobs come and go in the thread that trains; the one job of the other shape has `SlotWatch`.
 *
 * @param runId
 *   for the name of its thread
 * @param limitSeconds
 *   the key `recovery.replacement_wait`
 * @param slots
 *   of the session now, as `SparkFacts.slots`
 * @param cancel
 *   ends the run's jobs; called again and again from then on, as another may have begun
 * @param look
 *   called each time that the watch looks
 */
private[train] final class ExecutorWatch(
    runId: String,
    limitSeconds: Int,
    slots: () => Int,
    cancel: () => Unit,
    look: () => Unit = () => ()
) extends AutoCloseable {
  @volatile private var told: Option[String] = None
  @volatile private var closed = false
  private val thread = new Thread(() => watching(), s"sparkdl-executors-$runId")
  thread.setDaemon(true)
  thread.start()

  /** Why the jobs are ended here; None while they are not. */
  def complaint: Option[String] = told

  private def watching(): Unit = {
    var since = System.nanoTime()
    while (!closed) {
      // A session that is being stopped may throw, and ends its jobs itself.
      if (Try(slots()).getOrElse(1) > 0) since = System.nanoTime()
      else if (told.isEmpty && System.nanoTime() - since > limitSeconds * 1000000000L)
        told = Some(
          s"The session had not a single executor for $limitSeconds s (recovery.replacement_wait): those that held the ranks' weights were lost, and none " +
            "came in their place. Look at the cluster manager's page and the executors' logs, and start the run again; with checkpoint.dir set, it goes on " +
            "with --resume from its newest checkpoint."
        )
      if (told.nonEmpty) Try(cancel())
      Try(look())
      Thread.sleep(ExecutorWatch.LookMillis)
    }
  }

  override def close(): Unit = closed = true
}

private object ExecutorWatch { val LookMillis = 500L }
