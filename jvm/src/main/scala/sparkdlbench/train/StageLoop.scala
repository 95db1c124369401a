package sparkdlbench.train

import org.apache.spark.sparkdlbench.SparkFacts
import org.apache.spark.{BarrierTaskContext, HashPartitioner, SparkContext, TaskContext}
import sparkdlbench.config.RunKeys
import sparkdlbench.metrics.ByteCounter
import sparkdlbench.results.Recorder
import sparkdlbench.{AnyOutcome, ConfigurationException, RunFailedException, SparkDLPlugin}

import java.util.concurrent.TimeUnit
import scala.annotation.tailrec
import scala.util.{Failure, Success, Try}

/**
 * The loop of the one-stage shape: one barrier stage for the whole training; the ranks' tasks live as long as it. The driver
 * only listens to reports whose number does not grow with the steps.
 *
 * After a loss Spark retries the stage, and the ranks go on from the newest checkpoint. When Spark has given up, or no
 * executor has come in place of a lost one for `recovery.replacement_wait`, the driver submits the stage anew, in the second
 * case with as many workers as there are slots left.
 */
final class StageLoop(sc: SparkContext) extends TrainingLoop {

  def train(setup: RunSetup, recorder: Recorder, cancelled: () => Boolean): Trained = {
    val reports = new ReportReader(setup, recorder)
    try submit(setup, recorder, reports, cancelled)
    finally RankReports.close(setup.runId)
  }

  @tailrec
  private def submit(setup: RunSetup, recorder: Recorder, reports: ReportReader, cancelled: () => Boolean): Trained = {
    val watch = new SlotWatch(sc, setup)
    watchStage(setup, reports, watch, cancelled) match {
      case Success(outcomes) =>
        outcomes.foreach(outcome => (outcome.groups +: outcome.epochs).foreach(reports.receive))
        recorder.steps(
          outcomes.map(_.stepNanos),
          outcomes.map(_.phaseNanos),
          outcomes.map(each => (each.host, each.executorId))
        )
        recorder.counted(outcomes.map(_.counts))
        Trained(
          assemble(setup, outcomes),
          outcomes.head.statistics,
          ByteCounter.sum(outcomes.map(_.bytes)),
          outcomes.head.engine,
          outcomes.map(_.channels).filter(_.nonEmpty)
        )
      case Failure(cause) =>
        if (cancelled()) throw new CancelledException
        val next = again(setup, cause, watch)
        recorder.resubmitted(Failures.reason(cause), next.workers)
        submit(next, recorder, reports, cancelled)
    }
  }

  /** Runs the stage in a thread of its own, so that this one can listen and watch. */
  private def watchStage(
      setup: RunSetup,
      reports: ReportReader,
      watch: SlotWatch,
      cancelled: () => Boolean
  ): Try[Seq[RankOutcome]] = {
    val box = RankReports.open(setup.runId)
    @volatile var outcome: Option[Try[Array[RankOutcome]]] = None
    val job = new Thread(() => outcome = Some(AnyOutcome.of(runStage(setup))), s"sparkdl-stage-${setup.runId}")
    job.setDaemon(true)
    job.start()
    while (outcome.isEmpty) {
      Option(box.poll(StageLoop.PollMillis, TimeUnit.MILLISECONDS)).foreach(reports.receive)
      if (cancelled() || watch.waitedTooLong()) sc.cancelJobGroup(setup.runId)
    }
    while (!box.isEmpty) reports.receive(box.poll())
    outcome.get.map(_.toSeq.sortBy(_.rank))
  }

  /** How to go on after the stage has failed for good, or why not. */
  private def again(setup: RunSetup, cause: Throwable, watch: SlotWatch): RunSetup = {
    val limit = setup.settings(Checkpointing.resubmissions)
    val resumable = setup.settings(Checkpointing.folder).nonEmpty
    val slots = SparkFacts.slots(sc)
    if (Failures.isUsers(cause)) throw new ConfigurationException(Failures.reason(cause), cause)
    if (!resumable || setup.submission >= limit || slots == 0)
      throw new RunFailedException(
        Failures.reason(cause) +
          (if (!resumable) " No checkpoint.dir was set, so the run cannot go on from where it was."
           else if (slots == 0) " No executor is left."
           else s" The training was submitted ${setup.submission + 1} times; recovery.resubmissions is $limit."),
        cause
      )
    val fitting = slots - (setup.ranks - setup.workers)
    val workers = if (watch.gaveUp) math.max(1, math.min(setup.workers, fitting)) else setup.workers
    setup.copy(
      submission = setup.submission + 1,
      // The batch stays, and with it what the numbers of steps mean.
      settings = setup.settings
        .updated(RunKeys.workers, workers.toString)
        .updated(RunKeys.batch, setup.batch.toString)
        .updated(RunKeys.batchPerWorker, "0")
    )
  }

  /** The results leave through a shuffle, because Spark retries a failed barrier stage only where it is not the last. */
  private def runStage(setup: RunSetup): Array[RankOutcome] = {
    sc.setJobGroup(setup.runId, "sparkdl-bench training", interruptOnCancel = false)
    val shipped = sc.broadcast(setup)
    try
      sc.parallelize(0 until setup.ranks, setup.ranks)
        .barrier()
        .mapPartitions { _ =>
          val context = TaskContext.get().asInstanceOf[BarrierTaskContext]
          val done = new RankTask(shipped.value, context, SparkDLPlugin.report).run()
          Iterator((done.rank, done))
        }
        .partitionBy(new HashPartitioner(1))
        .values
        .collect()
    finally shipped.unpersist()
  }

  private def assemble(setup: RunSetup, outcomes: Seq[RankOutcome]): Array[Float] = {
    val all = new Array[Float](setup.spec.parameterCount)
    for (outcome <- outcomes; (from, values) <- outcome.weights) System.arraycopy(values, 0, all, from, values.length)
    all
  }
}

private object StageLoop { val PollMillis = 200L }

/**
 * Watches whether the stage's tasks run. Spark skips the offers of a barrier stage silently while there are too few slots
 * for it, for ever; this ends that wait.
 */
private final class SlotWatch(sc: SparkContext, setup: RunSetup) {
  private val limitNanos = setup.settings(Checkpointing.replacementSeconds) * 1000000000L
  private var idleSince = System.nanoTime()
  private var lookedAt = 0L

  /** True after the wait for slots was ended. */
  var gaveUp: Boolean = false

  def waitedTooLong(): Boolean = {
    val now = System.nanoTime()
    if (now - lookedAt > SlotWatch.LookNanos) {
      lookedAt = now
      if (allRun) idleSince = now
      if (now - idleSince > limitNanos) gaveUp = true
    }
    gaveUp
  }

  private def allRun: Boolean = {
    val stages =
      sc.statusTracker.getJobIdsForGroup(setup.runId).flatMap(sc.statusTracker.getJobInfo(_)).flatMap(_.stageIds)
    stages.flatMap(sc.statusTracker.getStageInfo(_)).exists { stage =>
      stage.numTasks == setup.ranks && stage.numActiveTasks + stage.numCompletedTasks >= setup.ranks
    }
  }
}

private object SlotWatch { val LookNanos = 500000000L }
