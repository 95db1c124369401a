package sparkdlbench.train

import org.apache.spark.{BarrierTaskContext, HashPartitioner, SparkContext}
import sparkdlbench.SparkDLPlugin
import sparkdlbench.engine.Evaluation
import sparkdlbench.metrics.ByteCounter
import sparkdlbench.results.Recorder

import java.util.concurrent.TimeUnit
import scala.collection.mutable
import scala.util.Try

/**
 * The loop of the one-stage shape: one barrier stage for the whole training; the ranks' tasks live as long as it. The driver
 * only listens to reports whose number does not grow with the steps.
 */
final class StageLoop(sc: SparkContext) extends TrainingLoop {

  def train(setup: RunSetup, recorder: Recorder, cancelled: () => Boolean): Trained = {
    val box = RankReports.open(setup.runId)
    val listener = new ReportReader(setup, recorder)
    @volatile var outcome: Option[Try[Array[RankOutcome]]] = None
    val job = new Thread(() => outcome = Some(Try(runStage(setup))), s"sparkdl-stage-${setup.runId}")
    job.setDaemon(true)
    try {
      job.start()
      while (outcome.isEmpty) Option(box.poll(StageLoop.PollMillis, TimeUnit.MILLISECONDS)).foreach(listener.receive)
      val outcomes = outcome.get.get.sortBy(_.rank)
      while (!box.isEmpty) listener.receive(box.poll())
      outcomes.foreach(_.epochs.foreach(listener.receive))
      recorder.steps(outcomes.toSeq.map(_.stepNanos), outcomes.toSeq.map(_.phaseNanos))
      Trained(assemble(setup, outcomes), ByteCounter.sum(outcomes.map(_.bytes)), outcomes.head.engine)
    } finally RankReports.close(setup.runId)
  }

  /** The results leave through a shuffle, because Spark retries a failed barrier stage only where it is not the last. */
  private def runStage(setup: RunSetup): Array[RankOutcome] = {
    sc.setJobGroup(setup.runId, "sparkdl-bench training", interruptOnCancel = false)
    val shipped = sc.broadcast(setup)
    try
      sc.parallelize(0 until setup.workers, setup.workers)
        .barrier()
        .mapPartitions { _ =>
          val task = new RankTask(shipped.value, BarrierTaskContext.get(), SparkDLPlugin.report)
          val done = task.run()
          Iterator((done.rank, done))
        }
        .partitionBy(new HashPartitioner(1))
        .values
        .collect()
    finally shipped.unpersist()
  }

  private def assemble(setup: RunSetup, outcomes: Array[RankOutcome]): Array[Float] = {
    val all = new Array[Float](setup.spec.parameterCount)
    for (outcome <- outcomes; (from, values) <- outcome.weights) System.arraycopy(values, 0, all, from, values.length)
    all
  }
}

private object StageLoop { val PollMillis = 200L }

/** Puts the ranks' reports together: an epoch is over when every rank has said so. */
private final class ReportReader(setup: RunSetup, recorder: Recorder) {
  private val pending = mutable.Map.empty[Int, mutable.Map[Int, EpochReport]]
  private var next = 0
  private var attempt = 0
  recorder.epochStarted(0)

  def receive(report: RankReport): Unit = if (report.attempt >= attempt) {
    if (report.attempt > attempt) {
      attempt = report.attempt
      pending.clear()
    }
    report match {
      case step: StepReport => recorder.progressed(step.step, step.loss, step.rowsPerSecond)
      case epoch: EpochReport if epoch.epoch >= next =>
        pending.getOrElseUpdate(epoch.epoch, mutable.Map.empty).update(epoch.rank, epoch)
        while (pending.get(next).exists(_.size == setup.workers)) finish(pending.remove(next).get.values.toSeq)
      case _ => ()
    }
  }

  private def finish(reports: Seq[EpochReport]): Unit = {
    val epoch = reports.head.epoch
    val evaluations = reports.flatMap(_.evaluation)
    if (evaluations.nonEmpty) recorder.evaluated(epoch, evaluations.foldLeft(Evaluation(0, 0.0, 0))(_ + _))
    recorder.epochStopped(epoch, reports.map(_.lossSum).sum / setup.rowsOfEpoch(epoch), Some(reports.map(_.seconds).max))
    next = epoch + 1
    if (next * setup.stepsPerEpoch.toLong < setup.totalSteps) recorder.epochStarted(next)
  }
}
