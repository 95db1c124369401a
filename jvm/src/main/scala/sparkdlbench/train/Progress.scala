package sparkdlbench.train

import sparkdlbench.metrics.ResourceUse
import sparkdlbench.results.Json

import scala.collection.immutable.ListMap

/** @param line what a log would say */
final case class Moment(state: String, step: Long, steps: Long, line: String, error: Option[String])

/** What a user may know about a run while it goes on; written by the training thread, read by any other. */
final class Progress {
  private var state = "running"
  private var epoch = 0
  private var epochs = 0
  private var step = 0L
  private var steps = 0L
  private var loss: Option[Double] = None
  private var accuracy: Option[Double] = None
  private var rowsPerSecond = 0.0
  private var error: Option[String] = None
  private var results = ""
  private var firstStepAt = 0L
  private var version = 0L

  def planned(epochs: Int, steps: Long): Unit = change { this.epochs = epochs; this.steps = steps }
  def resultsAt(path: String): Unit = change { results = path }
  def stepDone(step: Long, loss: Double, rowsPerSecond: Double): Unit = change {
    if (firstStepAt == 0L) firstStepAt = System.nanoTime()
    this.step = step
    this.loss = Some(loss)
    this.rowsPerSecond = rowsPerSecond
  }
  def evaluated(accuracy: Double): Unit = change { this.accuracy = Some(accuracy) }
  def epochStopped(epoch: Int): Unit = change { this.epoch = epoch }

  /** @param state done, failed or cancelled */
  def ended(state: String, error: Option[String]): Unit = change {
    this.state = state
    this.error = error
    if (state == "done") step = steps // ranks of one stage tell at most once a second where they are
  }

  def isRunning: Boolean = synchronized(state == "running")

  /** Waits until something changed since `snapshot` version `seen`, or `millis` have passed. */
  def awaitChange(seen: Long, millis: Long): Unit = synchronized {
    val end = System.nanoTime() + millis * 1000000L
    var left = millis
    while (version == seen && left > 0 && state == "running") {
      wait(left)
      left = (end - System.nanoTime()) / 1000000L
    }
  }

  def currentVersion: Long = synchronized(version)

  /** Now, as one whole. */
  def moment: Moment = synchronized(Moment(state, step, steps, line, error))

  /** One line for a log. */
  def line: String = synchronized {
    f"epoch $epoch/$epochs step $step/$steps loss ${loss.getOrElse(Double.NaN)}%.4f $rowsPerSecond%.0f rows/s" +
      accuracy.fold("")(value => f" test accuracy $value%.4f")
  }

  def json(use: Option[ResourceUse]): String = synchronized {
    val elapsed = (System.nanoTime() - firstStepAt) / 1e9
    val left = if (step > 1 && steps > step) Some(elapsed / (step - 1) * (steps - step)) else None
    Json.line(
      ListMap[String, Any](
        "state" -> state,
        "epoch" -> epoch,
        "epochs" -> epochs,
        "step" -> step,
        "steps" -> steps,
        "loss" -> loss,
        "test_accuracy" -> accuracy,
        "rows_per_second" -> rowsPerSecond,
        "seconds_left" -> left,
        "cores" -> use.map(_.cores),
        "resident_bytes" -> use.map(_.residentBytes),
        "error" -> error,
        "results" -> results
      )
    )
  }

  private def change(body: => Unit): Unit = synchronized {
    body
    version += 1
    notifyAll()
  }
}
