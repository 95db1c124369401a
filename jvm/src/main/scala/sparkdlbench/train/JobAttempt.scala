package sparkdlbench.train

import org.apache.spark.SparkContext
import sparkdlbench.common.Outcome
import sparkdlbench.engine.Evaluation
import sparkdlbench.metrics.ByteCounter
import sparkdlbench.rank.Exchange
import sparkdlbench.topology.{JobTransport, Topology}

import scala.util.Failure

/**
 * One submission of a job-per-step run: makes the ranks' states, brings them to the newest checkpoint, and trains to the end or to a failure.
 *
 * @param epochs
 *   what submissions before have told of
 * @param placing
 *   watches the job that takes the slots
 * @param executors
 *   those that there were before it
 */
private[train] final class JobAttempt(
    sc: SparkContext,
    transport: JobTransport,
    setup: RunSetup,
    recorder: Recorder,
    epochs: JobEpochs,
    placing: WatchedJob,
    executors: ExecutorsThen,
    cancelled: () => Boolean
) {
  private val notices = new StageNotices(setup.runId)
  private var placed: Option[RankGroup] = None

  /** Whether its jobs were ended here, so that another submission is of no use. */
  def isEnded: Boolean = placed.exists(_.isEnded)

  /** Left: steps made, where it ended at a checkpoint so that another number of workers goes on from there. */
  def run(): Either[Long, Trained] = {
    sc.setJobGroup(setup.runId, "sparkdl-bench training", interruptOnCancel = false)
    sc.addSparkListener(notices)
    Outcome.after(Outcome.of(inGroup()))(() => sc.removeSparkListener(notices), () => note())
  }

  private def inGroup(): Either[Long, Trained] = {
    val group = new RankGroup(sc, setup, placing, () => look())
    placed = Some(group)
    val trained = Outcome.of {
      val exchange = transport.exchange(group, Topology.of(setup.settings))
      val checkpoints = new JobCheckpoints(setup, group, exchange)
      Outcome.after(Outcome.of(train(group, exchange, checkpoints)))(() => checkpoints.close(), () => exchange.close())
    }
    val told = trained.recoverWith { case cause => Failure(group.explained(cause)) }
    Outcome.after(told)(() => group.close())
  }

  private def look(): Unit = {
    if (setup.range.nonEmpty) executors.look()
    note()
  }

  /** An executor that is lost is told of when it happens, by the thread that watches; its tasks' failures are the run's reason. */
  private def note(): Unit = if (!cancelled()) notices.take().filter(_.kind == "executor_stopped").foreach { notice =>
    val lost = placed.toSeq.flatMap(_.placements).filter(at => notice.executor.contains(at.executorId))
    lost.headOption.foreach { first =>
      val others = lost.tail.map(at => s"rank ${at.rank}")
      val reason = notice.reason + (if (others.isEmpty) "" else s"; it held ${others.mkString(", ")} as well")
      recorder.noticed(notice.copy(reason = reason, rank = Some(first.rank), host = Some(first.host)))
    }
  }

  private def train(group: RankGroup, exchange: Exchange, checkpoints: JobCheckpoints): Either[Long, Trained] = {
    val watch = WorkersWatch.of(sc, setup)
    var ends = false
    val steps = setup.totalSteps
    val begun = checkpoints.begin()
    var step = begun.step
    var losses = begun.losses
    recorder.placed(group.placements)
    recorder.begins(step)
    group.takePhases()
    def isOver = step == steps || Best.isOver(setup.settings, epochs.waited)
    while (!isOver && !ends) {
      val epoch = (step / setup.stepsPerEpoch).toInt
      val end = math.min(steps, (epoch + 1L) * setup.stepsPerEpoch)
      if (epochs.starts(epoch)) recorder.epochStarted(epoch)
      while (step < end && !ends) {
        if (cancelled()) throw new CancelledException
        losses += makeStep(group, exchange, step)
        step += 1
        ends = step < steps && watch.exists(_.wantsChange())
        if (step < end && (checkpoints.due(step) || ends)) checkpoints.write(step, losses)
      }
      if (step == end) {
        endEpoch(group, exchange, checkpoints, epoch, step, losses, ends)
        losses = 0.0
      }
    }
    checkpoints.await()
    if (ends && !isOver) Left(step) else Right(trained(group, exchange))
  }

  private def endEpoch(
      group: RankGroup,
      exchange: Exchange,
      checkpoints: JobCheckpoints,
      epoch: Int,
      step: Long,
      losses: Double,
      ends: Boolean
  ): Unit = {
    val isLast = step == setup.totalSteps
    val stepped = System.nanoTime()
    val found = if (Evaluations.due(setup, epoch, isLast)) Some(evaluate(group, exchange, epoch, step)) else None
    if (epochs.ends(epoch)) {
      found.foreach(recorder.evaluated(epoch, _))
      val rows = math.max(1L, (epoch.toLong * setup.stepsPerEpoch until step).map(setup.rowsOf(_).toLong).sum)
      recorder.epochStopped(epoch, losses / rows, (System.nanoTime() - stepped) / 1e9, checkpoints.takeSeconds())
    }
    val isOver = isLast || Best.isOver(setup.settings, epochs.waited)
    if (isOver || checkpoints.due(step) || ends) checkpoints.write(step, 0.0)
  }

  private def makeStep(group: RankGroup, exchange: Exchange, step: Long): Double = {
    val loss = exchange.step(step)
    if (!NonFinite.isFinite(loss) && NonFinite.stops(setup.settings))
      throw NonFinite.diverged(setup, step, s"the training loss is $loss")
    recorder.stepDone(step, setup.rowsOf(step), loss, group.takePhases())
    loss
  }

  private def evaluate(group: RankGroup, exchange: Exchange, epoch: Int, step: Long): Evaluation = {
    recorder.does(RunProgress.Evaluating)
    exchange.synchronize()
    JobStatistics.share(setup, group)
    val (evaluations, bytes) = group.states(rank => (rank.evaluate(), rank.bytes.toMap)).unzip
    val found = evaluations.foldLeft(Evaluation(0, 0.0, 0))(_ + _)
    NonFinite.check(setup, step - 1, found)
    if (Best.kept(setup.settings))
      if (Best.isBetter(setup.settings, found, epochs.best.map(_.test))) {
        epochs.best = Some(Best(epoch, found, Seq((0, exchange.weights())), JobStatistics.of(setup, group)))
        epochs.waited = 0
      } else if (epochs.isNew(epoch)) epochs.waited += 1
    recorder.sent(ByteCounter.sum(bytes :+ exchange.unrankedBytes))
    group.takePhases()
    found
  }

  private def trained(group: RankGroup, exchange: Exchange): Trained = {
    val weights = exchange.weights()
    val (facts, change) =
      group.states(rank => (rank.engine.facts, if (rank.rank == 0) rank.run.data.change else None)).head
    val bytes = ByteCounter.sum(group.states(_.bytes.toMap) :+ exchange.unrankedBytes)
    val skipped: Map[String, Seq[Long]] =
      if (NonFinite.skips(setup.settings)) Map(NonFinite.Skipped -> Seq(group.states(_.guard.skipped).head))
      else Map.empty
    recorder.counted(Seq(exchange.counts, skipped))
    Trained(weights, JobStatistics.of(setup, group), bytes, facts, best = epochs.best, change = change)
  }
}

/** Running statistics of a job-per-step run's ranks. */
private[train] object JobStatistics {

  /** Rank 0's. */
  def of(setup: RunSetup, group: RankGroup): Array[Float] =
    if (setup.spec.statisticsCount == 0) Array.empty[Float] else group.states(_.engine.statistics.toArray).head

  /** Makes every rank's the mean over the ranks: two jobs, where the model has any. */
  def share(setup: RunSetup, group: RankGroup): Unit =
    if (setup.spec.statisticsCount > 0 && setup.workers > 1) {
      val mean = RunningStatistics.mean(group.states(_.engine.statistics.toArray))
      group.states { rank => rank.engine.statistics.floats.put(0, mean); () }
      ()
    }
}
