package sparkdlbench.train

import org.apache.spark.SparkContext
import sparkdlbench.common.Outcome
import sparkdlbench.config.RunKeys
import sparkdlbench.data.Normalization
import sparkdlbench.engine.Evaluation
import sparkdlbench.metrics.ByteCounter
import sparkdlbench.rank.Exchange
import sparkdlbench.topology.{JobTransport, Topology}

import scala.util.Failure

/**
 * What a loop brings back.
 *
 * @param weights
 *   the trained weights, flat, fp32, in the model's layout
 * @param statistics
 *   running statistics, the ranks' mean
 * @param bytes
 *   payload bytes sent by all ranks, by channel
 * @param engine
 *   what rank 0's engine says it is
 * @param channels
 *   what really carried each rank's bytes, as the transport says; empty where it says nothing
 * @param best
 *   the weights of the best evaluation, in one part, where they are kept
 * @param change
 *   the normalisation of the rows, where there is one
 */
final case class Trained(
    weights: Array[Float],
    statistics: Array[Float],
    bytes: Map[String, Long],
    engine: Map[String, String],
    channels: Seq[Map[String, String]] = Nil,
    best: Option[Best] = None,
    change: Option[Normalization.Change] = None
)

/** A way to train: one of the two execution shapes. Knows no variant. */
trait TrainingLoop {
  def train(setup: RunSetup, recorder: Recorder, cancelled: () => Boolean): Trained
}

/** The loop of the job-per-step shape: it runs here, in the driver; each step is a few Spark jobs of the exchange's. */
final class JobLoop(sc: SparkContext, transport: JobTransport) extends TrainingLoop {

  def train(setup: RunSetup, recorder: Recorder, cancelled: () => Boolean): Trained = {
    val group = new RankGroup(sc, setup)
    val trained = Outcome.of {
      val exchange = transport.exchange(group, Topology.of(setup.settings))
      Outcome.after(Outcome.of(train(setup, recorder, cancelled, group, exchange)))(() => exchange.close())
    }
    val told = trained.recoverWith { case cause => Failure(group.explained(cause)) }
    Outcome.after(told)(() => group.close())
  }

  private def train(
      setup: RunSetup,
      recorder: Recorder,
      cancelled: () => Boolean,
      group: RankGroup,
      exchange: Exchange
  ): Trained = {
    val steps = setup.totalSteps
    var step = 0L
    var best: Option[Best] = None
    recorder.placed(group.placements)
    group.takePhases()
    while (step < steps) {
      val epoch = (step / setup.stepsPerEpoch).toInt
      val end = math.min(steps, (epoch + 1L) * setup.stepsPerEpoch)
      recorder.epochStarted(epoch)
      var losses = 0.0
      var rows = 0L
      while (step < end) {
        if (cancelled()) throw new CancelledException
        val loss = exchange.step(step)
        if (!NonFinite.isFinite(loss) && NonFinite.stops(setup.settings))
          throw NonFinite.diverged(setup, step, s"the training loss is $loss")
        val stepRows = setup.rowsOf(step)
        recorder.stepDone(step, stepRows, loss, group.takePhases())
        losses += loss
        rows += stepRows
        step += 1
      }
      val stepped = System.nanoTime()
      if (Evaluations.due(setup, epoch, step == steps)) {
        recorder.does(Progress.Evaluating)
        exchange.synchronize()
        shareStatistics(setup, group)
        val (evaluations, bytes) = group.states(rank => (rank.evaluate(), rank.bytes.toMap)).unzip
        val found = evaluations.foldLeft(Evaluation(0, 0.0, 0))(_ + _)
        recorder.evaluated(epoch, found)
        NonFinite.check(setup, step - 1, found)
        if (Best.kept(setup.settings) && Best.isBetter(setup.settings, found, best.map(_.test)))
          best = Some(Best(epoch, found, Seq((0, exchange.weights())), statistics(setup, group)))
        recorder.sent(ByteCounter.sum(bytes :+ exchange.unrankedBytes))
        group.takePhases()
      }
      recorder.epochStopped(epoch, losses / math.max(1L, rows), (System.nanoTime() - stepped) / 1e9)
    }
    val weights = exchange.weights()
    val (facts, change) =
      group.states(rank => (rank.engine.facts, if (rank.rank == 0) rank.run.data.change else None)).head
    val bytes = ByteCounter.sum(group.states(_.bytes.toMap) :+ exchange.unrankedBytes)
    if (NonFinite.skips(setup.settings))
      recorder.counted(Seq(Map(NonFinite.Skipped -> Seq(group.states(_.guard.skipped).head))))
    Trained(weights, statistics(setup, group), bytes, facts, best = best, change = change)
  }

  private def statistics(setup: RunSetup, group: RankGroup): Array[Float] =
    if (setup.spec.statisticsCount == 0) Array.empty[Float] else group.states(_.engine.statistics.toArray).head

  /** Makes every rank's running statistics the mean over the ranks: two jobs, where the model has any. */
  private def shareStatistics(setup: RunSetup, group: RankGroup): Unit =
    if (setup.spec.statisticsCount > 0 && setup.workers > 1) {
      val mean = Statistics.mean(group.states(_.engine.statistics.toArray))
      group.states { rank => rank.engine.statistics.floats.put(0, mean); () }
      ()
    }
}

private[train] object Evaluations {
  def due(setup: RunSetup, epoch: Int, last: Boolean): Boolean = {
    val every = setup.settings(RunKeys.evaluateEvery)
    last || (every > 0 && (epoch + 1) % every == 0)
  }
}
