package sparkdlbench.train

import org.apache.spark.sparkdlbench.SparkCodecs
import org.apache.spark.{BarrierTaskContext, HashPartitioner, SparkContext, TaskContext}
import sparkdlbench.common.Failures
import sparkdlbench.config.RunKeys
import sparkdlbench.metrics.ByteCounter

import java.util.concurrent.TimeUnit
import scala.annotation.tailrec
import scala.util.{Failure, Success, Try}

/**
 * The loop of the one-stage shape: one barrier stage for the whole training; the ranks' tasks live as long as it. The driver
 * holds the rendezvous where they meet, and then only listens to reports whose number does not grow with the steps.
 *
 * After a loss Spark retries the stage, and the ranks go on from the newest checkpoint. When Spark has given up, the driver submits the
 * stage anew; with as many workers as there are slots, when no executor has come in place of a lost one for
 * `recovery.replacement_wait`.
 *
 * With a range of workers the ranks end the stage at a checkpoint once the driver wants another number of them (`WorkersWatch`), and the driver
 * submits it with that number.
 */
final class StageLoop(sc: SparkContext) extends TrainingLoop {

  def train(setup: RunSetup, recorder: Recorder, cancelled: () => Boolean): Trained = {
    val reports = new ReportReader(setup, recorder)
    try submit(setup, recorder, reports, None, cancelled)
    finally RankReports.close(setup.runId)
  }

  /** @param sofar the best evaluation before this submission, where it is kept and ranks have brought it back */
  @tailrec
  private def submit(
      setup: RunSetup,
      recorder: Recorder,
      reports: ReportReader,
      sofar: Option[Best],
      cancelled: () => Boolean
  ): Trained = {
    val executors = new ExecutorsThen(sc)
    val watched = new WatchedJob(sc, setup, recorder.does)
    val left = new LeftRanks
    watchStage(setup, recorder, reports, watched, left, executors, cancelled) match {
      case Success(outcomes) if outcomes.head.left.nonEmpty =>
        outcomes.foreach(outcome => (outcome.groups +: outcome.epochs).foreach(reports.receive))
        val step = outcomes.head.left.get
        val next = new Resubmission(sc, cancelled).changed(setup, step)
        recorder.goesOn(next, step, executors.changes)
        submit(next, recorder, reports, best(setup, outcomes, sofar), cancelled)
      case Success(outcomes) =>
        outcomes.foreach(outcome => (outcome.groups +: outcome.epochs).foreach(reports.receive))
        recorder.steps(
          outcomes.map(_.stepNanos),
          outcomes.map(_.phases),
          outcomes.map(each => (each.host, each.executorId))
        )
        recorder.counted(outcomes.map(_.counts))
        Trained(
          Best.joined(outcomes.flatMap(_.weights), setup.spec.parameterCount),
          outcomes.head.statistics,
          ByteCounter.sum(outcomes.map(_.bytes)),
          outcomes.head.engine,
          outcomes.map(_.channels).filter(_.nonEmpty),
          best(setup, outcomes, sofar),
          outcomes.head.change
        )
      case Failure(_) if left.step.nonEmpty && !cancelled() =>
        val next = new Resubmission(sc, cancelled).changed(setup, left.step.get)
        recorder.goesOn(next, left.step.get, executors.changes)
        submit(next, recorder, reports, sofar, cancelled)
      case Failure(cause) =>
        if (cancelled()) throw new CancelledException
        watched.divergence.orElse(Failures.diverged(cause)).foreach(throw _)
        val reason = watched.complaint.getOrElse(Failures.reason(cause))
        val next = new Resubmission(sc, cancelled)
          .next(setup, reason, cause, watched.lackedSlots, isFinal = watched.complaint.nonEmpty)
        recorder.resubmitted(reason, next, executors.changes)
        submit(next, recorder, reports, sofar, cancelled)
    }
  }

  /** Runs the stage, and listens to its ranks meanwhile. */
  private def watchStage(
      setup: RunSetup,
      recorder: Recorder,
      reports: ReportReader,
      watched: WatchedJob,
      left: LeftRanks,
      executors: ExecutorsThen,
      cancelled: () => Boolean
  ): Try[Seq[RankOutcome]] = {
    val notices = new StageNotices(setup.runId)
    val silence = new SilenceWatch(
      () => notices.withoutHeartbeat(SilenceWatch.HeartbeatSeconds),
      setup.settings(RunKeys.timeoutSeconds)
    )
    def note(): Unit = if (!cancelled()) {
      val found = notices.take() ++ silence.look()
      // Once all ranks have ended at a checkpoint, what becomes of their tasks is nobody's trouble.
      val (gone, ofTasks) = found.partition(_.kind == "executor_stopped")
      (if (left.step.isEmpty) found else gone).foreach(recorder.noticed)
      if (left.step.nonEmpty && (ofTasks.nonEmpty || left.isOverdue)) sc.cancelJobGroup(setup.runId)
    }
    val workers = WorkersWatch.of(sc, setup)
    val box = RankReports.open(setup.runId)
    RankMeetings.open(setup.runId, Checkpointing.attempt(setup, 0))
    def receive(report: RankReport): Unit = {
      silence.receive(report)
      watched.receive(report)
      left.receive(report)
      reports.receive(report)
    }
    sc.addSparkListener(notices)
    val outcome =
      try
        watched.run(
          runStage(setup),
          () => {
            Option(box.poll(WatchedJob.PollMillis, TimeUnit.MILLISECONDS)).foreach(receive)
            note()
            workers.foreach { watch =>
              executors.look()
              RankMeetings.leave(setup.runId, watch.wantsChange())
            }
          },
          cancelled
        )
      finally {
        RankMeetings.close(setup.runId)
        sc.removeSparkListener(notices)
      }
    note()
    while (!box.isEmpty) receive(box.poll())
    outcome.map(_.toSeq.sortBy(_.rank))
  }

  /** The results leave through a shuffle, because Spark retries a failed barrier stage only where it is not the last. */
  private def runStage(setup: RunSetup): Array[RankOutcome] = {
    SparkCodecs.load()
    sc.setJobGroup(setup.runId, "sparkdl-bench training", interruptOnCancel = false)
    val shipped = sc.broadcast(setup)
    try
      sc.parallelize(0 until setup.ranks, setup.ranks)
        .barrier()
        .mapPartitions { _ =>
          val context = TaskContext.get().asInstanceOf[BarrierTaskContext]
          val done = new RankTask(shipped.value, context, DriverChannel.report).run()
          Iterator((done.rank, done))
        }
        .partitionBy(new HashPartitioner(1))
        .values
        .collect()
    finally Try(shipped.unpersist()) // the stage's own outcome counts, whatever becomes of this
  }

  /** All ranks have kept the same evaluation's; of equal ones the first stays. */
  private def best(setup: RunSetup, outcomes: Seq[RankOutcome], sofar: Option[Best]): Option[Best] = {
    val parts = outcomes.flatMap(_.best)
    val found = if (parts.isEmpty) None else Some(Best.whole(parts, setup.spec.parameterCount))
    found.filter(each => Best.isBetter(setup.settings, each.test, sofar.map(_.test))).orElse(sofar)
  }
}
