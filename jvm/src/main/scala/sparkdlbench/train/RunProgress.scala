package sparkdlbench.train

import sparkdlbench.common.Json
import sparkdlbench.engine.Evaluation
import sparkdlbench.metrics.ResourceUse

import scala.collection.immutable.ListMap

/** @param line what a log would say */
final case class RunStatus(state: String, step: Long, steps: Long, line: String, error: Option[String])

/**
 * What a user may know about a run while it goes on; written by the training thread, read by any other.
 *
 * @param nanoTime
 *   the clock
 */
final class RunProgress(nanoTime: () => Long = () => System.nanoTime()) {
  private var state = "running"
  private var epoch = 0
  private var epochs = 0
  private var step = 0L
  private var steps = 0L
  private var loss: Option[Double] = None
  private var evaluation: Option[Evaluation] = None
  private var rowsPerSecond = 0.0
  private var error: Option[String] = None
  private var usersToMend = false
  private var results = ""

  /** What the run does before its first step, and between steps. */
  private var doing = "starting"

  /** What befell it, in order; as lines for a terminal. */
  private var notices = Vector.empty[String]

  /** The first step that the attempt told of, and when: a run may go on from a checkpoint, or go back to one. */
  private var firstStep: Option[(Long, Long)] = None
  private var version = 0L

  def planned(epochs: Int, steps: Long): Unit = change { this.epochs = epochs; this.steps = steps }
  def resultsAt(path: String): Unit = change { results = path }
  def stepDone(step: Long, loss: Double, rowsPerSecond: Double): Unit = change {
    if (firstStep.isEmpty) firstStep = Some((step, nanoTime()))
    this.step = step
    this.loss = Some(loss)
    this.rowsPerSecond = rowsPerSecond
    doing = RunProgress.Training
  }

  /** The training begins, or begins again after a loss. */
  def attemptBegan(): Unit = change { firstStep = None }

  /** @param what as a user reads it, such as "waiting for 5 slots, 2 registered" */
  def does(what: String): Unit = if (synchronized(doing != what)) change { doing = what }
  def noticed(line: String): Unit = change { notices = notices :+ line }
  def evaluated(found: Evaluation): Unit = change { evaluation = Some(found) }
  def epochStopped(epoch: Int): Unit = change { this.epoch = epoch }

  /**
   * @param state
   *   done, failed, diverged or cancelled
   * @param usersToMend
   *   a rank found something wrong that the user can correct: a ConfigurationException
   */
  def ended(state: String, error: Option[String], usersToMend: Boolean = false): Unit = change {
    this.state = state
    this.error = error
    this.usersToMend = usersToMend
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

  /** Lines of what befell the run, after the first `seen` of them. */
  def noticesAfter(seen: Int): Seq[String] = synchronized(notices.drop(seen))

  /** Now, as one whole. */
  def moment: RunStatus = synchronized(RunStatus(state, step, steps, line, error))

  /** One line for a log. */
  def line: String = synchronized {
    val measured = loss.fold("")(value => f" loss $value%.4f $rowsPerSecond%.0f rows/s") +
      evaluation.fold("")(RunProgress.measured)
    val what = if (doing == RunProgress.Training || state != "running") "" else s" ($doing)"
    s"epoch $epoch/$epochs step $step/$steps$measured$what"
  }

  def json(use: Option[ResourceUse]): String = synchronized {
    val left = firstStep.filter { case (first, _) => step > first && steps > step }.map { case (first, at) =>
      (nanoTime() - at) / 1e9 / (step - first) * (steps - step)
    }
    Json.line(
      ListMap[String, Any](
        "state" -> state,
        "epoch" -> epoch,
        "epochs" -> epochs,
        "step" -> step,
        "steps" -> steps,
        "loss" -> loss,
        "test_accuracy" -> evaluation.flatMap(_.classified),
        "test_rmse" -> evaluation.flatMap(_.errors).map(_.rmse),
        "test_r2" -> evaluation.flatMap(_.errors).flatMap(_.r2),
        "rows_per_second" -> rowsPerSecond,
        "seconds_left" -> left,
        "cores" -> use.map(_.cores),
        "resident_bytes" -> use.map(_.residentBytes),
        "doing" -> doing,
        "notices" -> notices,
        "error" -> error,
        "error_kind" -> error.map(_ => if (state == "diverged") state else if (usersToMend) "configuration" else "run"),
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

private[sparkdlbench] object RunProgress {
  val Training = "training"
  val Evaluating = "evaluating"

  private def measured(found: Evaluation): String = found.errors match {
    case Some(errors) => f" test RMSE ${errors.rmse}%.5g" + errors.r2.fold("")(value => f" R² $value%.4f")
    case None => f" test accuracy ${found.accuracy}%.4f"
  }
}
