package sparkdlbench.train

import org.apache.spark.SparkContext
import sparkdlbench.common.{Failures, Outcome}
import sparkdlbench.config.RunKeys
import sparkdlbench.data.Normalization
import sparkdlbench.topology.JobTransport

import scala.annotation.tailrec
import scala.util.{Failure, Success}

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

/**
 * The loop of the job-per-step shape: it runs here, in the driver; each step is a few Spark jobs of the exchange's. After a loss the training is
 * submitted anew: all ranks' states are made again, and go on from the newest checkpoint.
 */
final class JobLoop(sc: SparkContext, transport: JobTransport) extends TrainingLoop {

  def train(setup: RunSetup, recorder: Recorder, cancelled: () => Boolean): Trained =
    submit(setup, recorder, new JobEpochs, cancelled)

  @tailrec
  private def submit(setup: RunSetup, recorder: Recorder, epochs: JobEpochs, cancelled: () => Boolean): Trained = {
    val executors = new ExecutorsThen(sc)
    val placing = new WatchedJob(sc, setup)
    val attempt = new JobAttempt(sc, transport, setup, recorder, epochs, placing, executors, cancelled)
    Outcome.of(attempt.run()) match {
      case Success(Right(trained)) => trained
      case Success(Left(step)) =>
        val next = new Resubmission(sc, cancelled).changed(setup, step)
        recorder.goesOn(next, step, executors.changes)
        submit(next, recorder, epochs, cancelled)
      case Failure(cause) =>
        if (cancelled()) throw new CancelledException
        Failures.diverged(cause).foreach(throw _)
        if (cause.isInstanceOf[VirtualMachineError] || sc.isStopped) throw cause
        val reason = Failures.reason(cause)
        val isFinal = attempt.isEnded || placing.complaint.nonEmpty
        val next = new Resubmission(sc, cancelled).next(setup, reason, cause, placing.lackedSlots, isFinal)
        recorder.resubmitted(reason, next, executors.changes)
        submit(next, recorder, epochs, cancelled)
    }
  }
}

/** What the driver keeps of a job-per-step run over its submissions: which epochs have been told of, and the best evaluation. */
private[train] final class JobEpochs {
  private var told = -1
  private var started = -1
  var best: Option[Best] = None

  /** Evaluations since the best one. */
  var waited = 0

  def isNew(epoch: Int): Boolean = epoch > told

  /** Whether an epoch ends for the first time. */
  def ends(epoch: Int): Boolean = isNew(epoch) && { told = epoch; true }
  def starts(epoch: Int): Boolean = epoch > started && { started = epoch; true }
}

private[train] object Evaluations {
  def due(setup: RunSetup, epoch: Int, last: Boolean): Boolean = {
    val every = setup.settings(RunKeys.evaluateEvery)
    last || (every > 0 && (epoch + 1) % every == 0)
  }
}
