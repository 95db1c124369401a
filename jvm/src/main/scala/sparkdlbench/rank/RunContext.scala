package sparkdlbench.rank

import sparkdlbench.codec.Codec
import sparkdlbench.config.Settings
import sparkdlbench.data.BatchPlan
import sparkdlbench.model.ModelSpec
import sparkdlbench.optimizer.{Optimizer, OptimizerVariant}
import sparkdlbench.vector.FlatBuffer

/** One submission of a run: what executors hold belongs to it alone. */
final case class RunSubmission(runId: String, number: Int) {
  def print: String = if (number == 0) runId else s"$runId-$number"
}

/** What an algorithm or an exchange may know of the run that it is part of. Nothing of it changes while the run trains. */
trait RunContext {

  /** Unique in the application. */
  def runId: String

  /** How many times the driver has submitted the training anew after Spark gave it up. */
  def submission: Int

  /** Unique for each submission of the run. */
  final def submitted: RunSubmission = RunSubmission(runId, submission)
  def settings: Settings
  def spec: ModelSpec

  /** Ranks that compute: the first ones. */
  def workers: Int

  /** Those and the servers that have tasks of their own. */
  def ranks: Int

  /** Which rows belong to which step and rank. */
  def plan: BatchPlan

  /** The most rows that a rank's engine is given at once in training. */
  def rowsAtOnce: Int
  def stepsPerEpoch: Int

  /** Steps that the whole run makes. */
  def totalSteps: Long

  /** Rows of the global batch of a step; an epoch's last one may be smaller. */
  def rowsOf(step: Long): Int

  /** Bound of every wait for another rank. */
  def timeoutMillis: Long

  /** Of gradients. */
  def codec: Codec
  def parameterCodec: Codec
  def optimizer: OptimizerVariant

  /** Values that the optimiser keeps for each weight. */
  def optimizerValues: Int

  /** Writes what the model's parameters start from: its initialisers' values, or those of a file (`model.initial_weights`). */
  def startFrom(parameters: FlatBuffer): Unit

  /** For the values [`from`, `until`) of the model's parameters. */
  def newOptimizer(from: Int, until: Int, settings: Settings = settings): Optimizer
}
