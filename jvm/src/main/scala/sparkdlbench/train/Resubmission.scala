package sparkdlbench.train

import org.apache.spark.SparkContext
import org.apache.spark.sparkdlbench.SparkFacts
import sparkdlbench.algorithm.BackupWorkers
import sparkdlbench.common.{ConfigurationException, Failures, RunFailedException}
import sparkdlbench.config.{CheckpointKeys, RunKeys, Settings}
import sparkdlbench.topology.Ps

import java.io.IOException

/**
 * How a training goes on after Spark has given it up, or with another number of workers of their range: from its newest checkpoint. After losses that
 * is a bounded number of times, and with as many workers as there are slots when no executor has come in place of a lost one for
 * `recovery.replacement_wait`. The same for both execution shapes.
 */
private[train] final class Resubmission(sc: SparkContext, cancelled: () => Boolean) {

  /**
   * The setup of the next submission.
   *
   * @param lackedSlots
   *   whether the training was ended because it had waited too long for its slots
   * @param isFinal
   *   whether another reason than Spark's ended it, so that trying again is of no use
   * @throws sparkdlbench.common.SparkDLException
   *   it cannot go on; the message says why
   */
  def next(setup: RunSetup, reason: String, cause: Throwable, lackedSlots: Boolean, isFinal: Boolean): RunSetup = {
    val limit = setup.settings(CheckpointKeys.resubmissions)
    def failed(why: String) = throw new RunFailedException(s"$reason $why".trim, cause)
    if (Failures.isUsers(cause)) throw new ConfigurationException(Failures.reason(cause), cause)
    if (isFinal && !lackedSlots) failed("")
    if (setup.settings(CheckpointKeys.folder).isEmpty)
      failed("No checkpoint.dir was set, so the run cannot go on from where it was.")
    val (counted, madeSteps) = (setup.submission - setup.uncounted, newest(setup))
    if (counted >= limit)
      failed(s"The training was submitted ${counted + 1} times; recovery.resubmissions is $limit.")
    // A job that has waited for slots has waited long enough.
    val slots = if (lackedSlots) SparkFacts.slots(sc) else awaitSlots(setup)
    val workers = Resubmission
      .number(setup, slots)
      .getOrElse(
        failed(
          s"$slots slots are left, too few for the run to go on${Resubmission.least(setup)}, and no executor came in place of those that were lost."
        )
      )
    // In days of training many executors come and go; only losses before any new checkpoint are a training that cannot go on.
    val uncounted = if (setup.range.nonEmpty && madeSteps > setup.begunAt) 1 else 0
    val after = Resubmission.after(setup, workers, madeSteps, uncounted)
    // Each of fewer workers has more rows of the batch, and may share its executor with more of them.
    if (workers < setup.workers)
      try { val _ = MemoryCheck.estimated(sc, after) }
      catch {
        case refused: ConfigurationException =>
          failed(s"It cannot go on with $workers workers in place of ${setup.workers}. ${refused.getMessage}")
      }
    after
  }

  /**
   * The setup of the submission after one that ended at a checkpoint, so that another number of workers goes on from there.
   *
   * @param step
   *   steps made
   * @throws sparkdlbench.common.RunFailedException
   *   meanwhile there are too few slots, and none came for `recovery.replacement_wait`
   */
  def changed(setup: RunSetup, step: Long): RunSetup = {
    val slots = awaitSlots(setup)
    val workers = Resubmission
      .number(setup, slots)
      .getOrElse(
        throw new RunFailedException(
          s"The training ended after step $step to go on with another number of workers, and the session has $slots slots now, too few for it" +
            s"${Resubmission.least(setup)}. Give the session more executors, and go on with --resume ${setup.settings(CheckpointKeys.folder)}."
        )
      )
    Resubmission.after(setup, workers, step, uncounted = 1)
  }

  /** The step of the newest checkpoint of the run; 0 where there is none. */
  private def newest(setup: RunSetup): Long =
    try
      Checkpointing.store(setup, CheckpointKeys.folder).flatMap(_.complete(Some(setup.runId)).headOption).getOrElse(0L)
    catch { case _: IOException => setup.begunAt } // the ranks will say what is wrong with the folder

  /** Slots once there are as many as ranks, or when the wait for executors in place of lost ones is over. */
  private def awaitSlots(setup: RunSetup): Int = {
    val (begun, settings) = (System.nanoTime(), setup.settings)
    def passed(seconds: Int): Boolean = System.nanoTime() - begun >= seconds * 1000000000L
    def willDo: Boolean =
      setup.range.exists(WorkerNumbers.fitting(settings, _, SparkFacts.slots(sc)).nonEmpty) &&
        passed(settings(CheckpointKeys.settleSeconds))
    while (SparkFacts.slots(sc) < setup.ranks && !willDo && !passed(settings(CheckpointKeys.replacementSeconds))) {
      if (cancelled()) throw new CancelledException
      Thread.sleep(WatchedJob.PollMillis)
    }
    SparkFacts.slots(sc)
  }
}

private[train] object Resubmission {

  /** How many workers go on; None where the slots are too few. */
  private def number(setup: RunSetup, slots: Int): Option[Int] = setup.range match {
    case Some(range) => WorkerNumbers.fitting(setup.settings, range, slots)
    case None => Some(math.min(setup.workers, slots - (setup.ranks - setup.workers))).filter(_ >= 1)
  }

  private def least(setup: RunSetup): String = setup.range.fold("")(range => s" (workers = $range)")

  private def after(setup: RunSetup, workers: Int, step: Long, uncounted: Int): RunSetup = {
    val next = setup.copy(
      submission = setup.submission + 1,
      settings = if (workers == setup.workers) setup.settings else withWorkers(setup, workers),
      uncounted = setup.uncounted + uncounted,
      begunAt = step
    )
    Combination.check(next.settings)
    next
  }

  /** The batch stays, and with it what the numbers of steps mean. */
  def withWorkers(setup: RunSetup, workers: Int): Settings = setup.settings
    .updated(RunKeys.workers, workers.toString)
    .updated(RunKeys.batch, setup.batch.toString)
    .updated(RunKeys.batchPerWorker, "0")
    .updated(Ps.shards, math.min(setup.settings(Ps.shards), workers).toString)
    .updated(BackupWorkers.count, math.min(setup.settings(BackupWorkers.count), workers - 1).toString)
}
