package sparkdlbench.train

import org.apache.spark.SparkContext
import org.apache.spark.sparkdlbench.SparkFacts
import sparkdlbench.algorithm.BackupWorkers
import sparkdlbench.common.{ConfigurationException, Failures, RunFailedException}
import sparkdlbench.config.{CheckpointKeys, RunKeys, Settings}
import sparkdlbench.topology.Ps

/**
 * How a training goes on after Spark has given it up: from its newest checkpoint, a bounded number of times, with as many workers as there are slots
 * when no executor has come in place of a lost one for `recovery.replacement_wait`. The same for both execution shapes.
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
    if (setup.submission >= limit)
      failed(s"The training was submitted ${setup.submission + 1} times; recovery.resubmissions is $limit.")
    // A job that has waited for slots has waited long enough.
    val slots = if (lackedSlots) SparkFacts.slots(sc) else awaitSlots(setup)
    val workers = math.min(setup.workers, slots - (setup.ranks - setup.workers))
    if (workers < 1)
      failed(
        s"$slots slots are left, too few for the run to go on, and no executor came in place of those that were lost."
      )
    val next = setup.copy(
      submission = setup.submission + 1,
      settings = if (workers == setup.workers) setup.settings else Resubmission.withWorkers(setup, workers)
    )
    Combination.check(next.settings)
    next
  }

  /** Slots once there are as many as ranks, or when the wait for executors in place of lost ones is over. */
  private def awaitSlots(setup: RunSetup): Int = {
    val end = System.nanoTime() + setup.settings(CheckpointKeys.replacementSeconds) * 1000000000L
    while (SparkFacts.slots(sc) < setup.ranks && System.nanoTime() < end) {
      if (cancelled()) throw new CancelledException
      Thread.sleep(WatchedJob.PollMillis)
    }
    SparkFacts.slots(sc)
  }
}

private[train] object Resubmission {

  /** The batch stays, and with it what the numbers of steps mean. */
  def withWorkers(setup: RunSetup, workers: Int): Settings = setup.settings
    .updated(RunKeys.workers, workers.toString)
    .updated(RunKeys.batch, setup.batch.toString)
    .updated(RunKeys.batchPerWorker, "0")
    .updated(Ps.shards, math.min(setup.settings(Ps.shards), workers).toString)
    .updated(BackupWorkers.count, math.min(setup.settings(BackupWorkers.count), workers - 1).toString)
}
