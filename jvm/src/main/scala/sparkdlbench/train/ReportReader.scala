package sparkdlbench.train

import sparkdlbench.engine.Evaluation

import scala.collection.mutable

/** Puts the ranks' reports together: an epoch is over when every rank of one attempt has said so. Driver side, one thread. */
private[train] final class ReportReader(setup: RunSetup, recorder: Recorder) {
  private val pending = mutable.Map.empty[Int, mutable.Map[Int, EpochReport]]
  private var next = 0
  private var begun = false
  private var attempt = 0
  private var grouped = -1

  /** The newest step that rank 0 has told of in this attempt. */
  private var reached = 0L
  recorder.epochStarted(0)

  /** Reports of attempts before the newest, and of epochs that are over, change nothing. */
  def receive(report: RankReport): Unit = if (report.attempt >= attempt) {
    if (report.attempt > attempt) {
      attempt = report.attempt
      pending.clear()
      reached = 0
    }
    report match {
      case step: StepReport =>
        reached = step.step
        recorder.progressed(step.step, step.loss, step.rowsPerSecond)
        recorder.told(step.status)
      case groups: GroupsReport if groups.attempt > grouped =>
        grouped = groups.attempt
        recorder.grouped(groups.groups, groups.placed, groups.before, groups.from)
      case start: StartReport => recorder.does(s"rank ${start.rank} of ${setup.ranks} ${start.doing}")
      case one: DoingReport => recorder.does(one.doing)
      case epoch: EpochReport if epoch.epoch >= next =>
        // A run that goes on from another's checkpoint begins with a later epoch; a rank's reports come in order.
        if (!begun) next = epoch.epoch
        begun = true
        recorder.told(epoch.status)
        pending.getOrElseUpdate(epoch.epoch, mutable.Map.empty).update(epoch.rank, epoch)
        while (pending.get(next).exists(ranks => ranks.size == ranks.head._2.ranks))
          finish(pending.remove(next).get.values.toSeq)
      case _ => ()
    }
  }

  /** The slowest rank's epoch, and the mean of its parts, as steps are the mean: so what is left over is nobody's. */
  private def seconds(reports: Seq[EpochReport]): EpochSeconds = {
    val computing = reports.filter(report => report.rank < report.workers).map(_.seconds)
    def mean(part: EpochSeconds => Double) = computing.map(part).sum / computing.size
    EpochSeconds(computing.map(_.whole).max, mean(_.evaluation), mean(_.checkpoint))
  }

  /** An epoch's last step, which all ranks tell of: without it, the loss of short epochs would be an old one. */
  private def progressed(reports: Seq[EpochReport]): Unit = {
    val epoch = reports.head.epoch
    val end = math.min(setup.totalSteps, (epoch + 1L) * setup.stepsPerEpoch)
    if (end >= reached) {
      val took = seconds(reports)
      val stepping = math.max(1e-9, took.whole - took.evaluation - took.checkpoint)
      val loss = reports.map(_.lastLossSum).sum / math.max(1, setup.rowsOf(end - 1))
      recorder.progressed(end, loss, setup.rowsOfEpoch(epoch) / stepping)
    }
  }

  private def finish(reports: Seq[EpochReport]): Unit = {
    val epoch = reports.head.epoch
    val evaluations = reports.flatMap(_.evaluation)
    if (evaluations.nonEmpty) recorder.evaluated(epoch, evaluations.foldLeft(Evaluation(0, 0.0, 0))(_ + _))
    progressed(reports)
    if (reports.exists(_.bytesRead > 0)) recorder.dataRead(epoch, reports.sortBy(_.rank).map(_.bytesRead))
    recorder.epochStopped(epoch, reports.map(_.lossSum).sum / setup.rowsOfEpoch(epoch), seconds(reports))
    next = epoch + 1
    if (!reports.head.isLast) recorder.epochStarted(next)
  }
}
