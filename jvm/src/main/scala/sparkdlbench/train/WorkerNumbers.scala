package sparkdlbench.train

import sparkdlbench.algorithm.BackupWorkers
import sparkdlbench.config.{CheckpointKeys, RunKeys, Settings, WorkerRange}
import sparkdlbench.topology.Ps

/** Which number of workers a run with a range of them (`workers = 2..8`) has, and what may not be asked for together with one. */
private[sparkdlbench] object WorkerNumbers {

  /** Longer ranges are checked at this many numbers from either bound. */
  private val Checked = 32

  /**
   * The largest number of the range for which there are slots, and for which the variants go together.
   *
   * @param slots
   *   of the session now; servers with tasks of their own need some of them
   * @return
   *   None where there are too few slots
   */
  def fitting(settings: Settings, range: WorkerRange, slots: Int): Option[Int] =
    (math.min(range.most, slots - Ps.ownServers(settings)) to range.least by -1).find { number =>
      Combination.refusal(settings.updated(RunKeys.workers, number.toString)).isEmpty
    }

  /** None where all numbers of the range can train with these settings, otherwise why not and what to do. */
  def refusal(settings: Settings, range: WorkerRange): Option[String] =
    undefined(settings, range).orElse(
      numbers(range).iterator
        .flatMap { number =>
          Combination
            .refusal(settings.updated(RunKeys.workers, number.toString))
            .map(why => s"workers = $range may be $number, and then: $why")
        }
        .take(1)
        .toList
        .headOption
    )

  private def numbers(range: WorkerRange): Seq[Int] =
    ((range.least to math.min(range.most, range.least + Checked)) ++
      (math.max(range.least, range.most - Checked) to range.most)).distinct

  /** What has no meaning, or cannot be done, when the number changes. */
  private def undefined(settings: Settings, range: WorkerRange): Option[String] = {
    def refused(why: String) = Some(
      s"workers = $range lets the number of workers change while the run goes on, and $why"
    )
    if (settings(RunKeys.batchPerWorker) > 0)
      refused(
        s"with batch_per_worker = ${settings(RunKeys.batchPerWorker)} the global batch would change with it, and so what a step is. Set batch, the " +
          "rows per step over all workers, in place of batch_per_worker."
      )
    else if (settings(CheckpointKeys.folder).isEmpty)
      refused(
        "it changes at a checkpoint, from which all ranks go on. Set checkpoint.dir to a folder that the driver and all executors share, such as " +
          "hdfs://…/checkpoints, or workers to one number."
      )
    else if (settings(BackupWorkers.count) > 0)
      refused(
        s"backup_workers = ${settings(BackupWorkers.count)} is a number of one size of the group, whose ranks do not wait for each other at a step that all " +
          "know. Set backup_workers = 0, or workers to one number."
      )
    else None
  }
}
