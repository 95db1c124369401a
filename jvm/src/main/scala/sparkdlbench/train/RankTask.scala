package sparkdlbench.train

import org.apache.spark.{BarrierTaskContext, SparkEnv}
import sparkdlbench.algorithm.{Algorithm, RankAlgorithm}
import sparkdlbench.config.{RunKeys, Settings, Variants}
import sparkdlbench.engine.Evaluation
import sparkdlbench.topology.Topology
import sparkdlbench.transport.{GroupContext, OneStageTransport, TimedTransport, TransportVariant}

import scala.collection.mutable.ArrayBuffer

/**
 * What one rank of a one-stage run brings back.
 *
 * @param weights
 *   the ranges it answers for: (first value, values)
 * @param stepNanos
 *   length of each step, in order
 * @param phaseNanos
 *   exposed nanoseconds by phase, summed over the steps
 */
final case class RankOutcome(
    rank: Int,
    host: String,
    executorId: String,
    weights: Seq[(Int, Array[Float])],
    stepNanos: Array[Long],
    phaseNanos: Array[Long],
    bytes: Map[String, Long],
    engine: Map[String, String],
    epochs: Seq[EpochReport]
)

/** One rank of a one-stage run: the whole training loop, in a task of the barrier stage. */
final class RankTask(setup: RunSetup, context: BarrierTaskContext, report: RankReport => Unit) {
  private val rankNumber = context.partitionId()
  private val attempt = context.stageAttemptNumber()
  private val epochs = ArrayBuffer.empty[EpochReport]
  private val stepNanos = ArrayBuffer.empty[Long]
  private val phaseNanos = new Array[Long](sparkdlbench.metrics.Phase.names.size)
  private var reportedAt = System.nanoTime()

  def run(): RankOutcome = {
    val executor = ExecutorRuns.open(setup)
    val rank = executor.start(rankNumber)
    val group = new BarrierGroup(setup, context)
    val transport = transportVariant.connect(group)
    try {
      val algorithm = Variants
        .find[Algorithm]("algorithm", setup.settings(RunKeys.algorithm))
        .start(
          rank,
          new TimedTransport(transport, rank.timer),
          Variants.find[Topology]("topology", setup.settings(RunKeys.topology))
        )
      train(rank, algorithm)
      outcome(rank, algorithm, transport.bytesSent)
    } finally {
      transport.close()
      executor.stop(rankNumber)
    }
  }

  private def transportVariant: OneStageTransport =
    Variants.find[TransportVariant]("transport", setup.settings(RunKeys.transport)) match {
      case transport: OneStageTransport => transport
      case other => throw new IllegalStateException(s"transport ${other.name} is not of the one-stage shape")
    }

  private def train(rank: RankState, algorithm: RankAlgorithm): Unit = {
    val steps = setup.totalSteps
    var step = 0L
    while (step < steps) {
      val epoch = (step / setup.stepsPerEpoch).toInt
      val start = System.nanoTime()
      val end = math.min(steps, (epoch + 1L) * setup.stepsPerEpoch)
      val losses = trainEpoch(rank, algorithm, step, end)
      step = end
      val evaluation = if (Evaluations.due(setup, epoch, step == steps)) Some(evaluate(rank, algorithm)) else None
      val done = EpochReport(setup.runId, attempt, rankNumber, epoch, (System.nanoTime() - start) / 1e9, losses, evaluation)
      epochs += done
      report(done)
    }
  }

  private def trainEpoch(rank: RankState, algorithm: RankAlgorithm, from: Long, until: Long): Double = {
    var losses = 0.0
    var step = from
    rank.timer.restart(sparkdlbench.metrics.Phase.Data)
    while (step < until) {
      if (context.isInterrupted()) throw new CancelledException
      val loss = algorithm.step(step)
      losses += loss
      count(rank)
      reportProgress(step, loss, rank)
      step += 1
    }
    losses
  }

  private def count(rank: RankState): Unit = {
    val taken = rank.timer.take()
    var sum = 0L
    var phase = 0
    while (phase < taken.length) { phaseNanos(phase) += taken(phase); sum += taken(phase); phase += 1 }
    stepNanos += sum
  }

  private def reportProgress(step: Long, loss: Double, rank: RankState): Unit =
    if (rankNumber == 0 && System.nanoTime() - reportedAt > RankTask.ReportNanos) {
      reportedAt = System.nanoTime()
      val (first, end) = rank.plan.share(rank.plan.stepInEpoch(step), rankNumber)
      val seconds = stepNanos.takeRight(100).sum / 1e9 / math.min(100, stepNanos.size)
      report(StepReport(setup.runId, attempt, step + 1, loss / math.max(1, end - first), setup.batch / seconds))
    }

  private def evaluate(rank: RankState, algorithm: RankAlgorithm): Evaluation = {
    algorithm.settle()
    rank.evaluate()
  }

  private def outcome(rank: RankState, algorithm: RankAlgorithm, bytes: Map[String, Long]): RankOutcome = {
    algorithm.settle()
    RankOutcome(
      rankNumber,
      rank.host,
      rank.executorId,
      algorithm.weights,
      stepNanos.toArray,
      phaseNanos,
      bytes,
      rank.engine.facts,
      epochs.toSeq
    )
  }
}

private object RankTask { val ReportNanos = 1000000000L }

/** The rendezvous of a barrier stage. */
private final class BarrierGroup(setup: RunSetup, context: BarrierTaskContext) extends GroupContext {
  def rank: Int = context.partitionId()
  def size: Int = setup.workers
  def attemptId: String = s"${setup.runId}-${context.stageAttemptNumber()}"
  def settings: Settings = setup.settings
  def timeoutMillis: Long = setup.timeoutMillis
  def allGather(text: String): IndexedSeq[String] = context.allGather(text).toIndexedSeq
  def isKilled: Boolean = context.isInterrupted()
  override def toString: String = s"rank $rank of $size in executor ${SparkEnv.get.executorId}"
}
