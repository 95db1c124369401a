package sparkdlbench.train

import sparkdlbench.algorithm.{Algorithm, BackupWorkers}
import sparkdlbench.codec.ChosenCodecs
import sparkdlbench.common.DivergedException
import sparkdlbench.config.{Key, KeyGroup, RunKeys, Settings, Variants}
import sparkdlbench.data.{DataSource, Normalization}
import sparkdlbench.engine.Evaluation
import sparkdlbench.loss.Loss
import sparkdlbench.optimizer.{Clipping, LearningRateSchedule}

/**
 * What happens when a loss is NaN or infinite (`on_nonfinite`).
 *
 *   - `stop`: the run ends at that step. Each rank looks at the loss that it has computed anyway; after a sum of gradients all ranks have
 *     the same NaN, so all see it, at the latest in the next step.
 *   - `skip`: nobody makes the step's update (`StepGuard`).
 *   - `continue`: training goes on, and the results say that the loss was not finite.
 */
object NonFinite {
  val Stop = "stop"
  val Skip = "skip"
  val Continue = "continue"

  val policy: Key[String] = Key.choice(
    "on_nonfinite",
    Stop,
    Seq(Stop, Skip, Continue),
    "When a loss is NaN or infinite: stop the run as diverged, skip that step's update on all workers (sync-sgd), or continue"
  )

  /** Updates that `skip` leaves out one after another before the run counts as diverged: weights that are spoilt do not recover. */
  val MostSkipped = 10

  /** Of the counts in a run's results: steps whose update was left out. */
  val Skipped = "skipped_steps"

  def isFinite(value: Double): Boolean = !value.isNaN && !value.isInfinite

  def stops(settings: Settings): Boolean = settings(policy) == Stop
  def skips(settings: Settings): Boolean = settings(policy) == Skip

  /** Why `skip` cannot leave a step out at all workers alike with these settings. */
  def refuses(settings: Settings): Option[String] = {
    val codec = ChosenCodecs.gradient(settings)
    def refused(why: String) = Some(
      s"on_nonfinite = skip leaves a step out on all workers alike, and $why. Set on_nonfinite = stop or continue, or use algorithm sync-sgd " +
        "with topology sliced and codec fp32, bf16 or fp16."
    )
    if (!skips(settings)) None
    else if (!sums(settings))
      refused(s"with algorithm ${settings(RunKeys.algorithm)} each worker's updates are its own")
    else if (settings(BackupWorkers.count) > 0)
      refused(s"backup_workers = ${settings(BackupWorkers.count)} lets each shard drop other gradients")
    else if (codec.keepsResidual)
      refused(s"codec ${codec.name} keeps what it did not send for later steps, which would bring the bad values back")
    else if (settings(RunKeys.topology) == "tree") refused("with topology tree the driver alone updates")
    else None
  }

  private def sums(settings: Settings): Boolean =
    Variants.find[Algorithm]("algorithm", settings(RunKeys.algorithm)).sumsEveryStep

  /** Ends the run after an evaluation on weights that are no numbers any more. @param step the last one made, from 0 */
  def check(setup: RunSetup, step: Long, test: Evaluation): Unit =
    if (!isFinite(test.lossSum) && setup.settings(policy) != Continue)
      throw diverged(setup, step, s"the test loss after it is ${test.lossSum}")

  /**
   * @param step
   *   from 0
   * @param found
   *   what is not finite
   */
  def diverged(setup: RunSetup, step: Long, found: String): DivergedException = {
    val settings = setup.settings
    val remedies = Seq(
      Some(s"Lower optimizer.learning_rate (it is ${settings(RunKeys.learningRate)})"),
      Some(s"warm it up (schedule.warmup_steps, it is ${settings(LearningRateSchedule.warmupSteps)})"),
      Some("bound the gradient (clip_norm = 1)").filter(_ => settings(Clipping.norm) == 0 && sums(settings))
    ).flatten
    new DivergedException(
      s"The training diverged in step ${step + 1} of ${setup.totalSteps} (epoch ${step / setup.stepsPerEpoch + 1}): $found. " +
        s"${remedies.init.mkString(", ")} or ${remedies.last}.${units(settings)}"
    )
  }

  /** Values of a table are in the user's own units, and steps grow with them. */
  private def units(settings: Settings): String = {
    val source = Variants.find[DataSource]("data source", settings(RunKeys.data))
    val rows =
      if (!source.givesNumbers || settings(Normalization.mode) != "none") ""
      else " The rows' values are in units of their own; data.normalize = standard scales them."
    val labels =
      if (!Loss.of(settings).isRegression) ""
      else
        " A regression's loss grows with the labels' unit: train on labels near -1 to 1, such as (label - mean) / standard deviation, and undo " +
          "that on the predictions."
    rows + labels
  }
}

final class NonFiniteKeys extends KeyGroup {
  def keys: Seq[Key[_]] = Seq(NonFinite.policy)
}
