package sparkdlbench.train

import org.apache.spark.broadcast.Broadcast
import org.apache.spark.util.SerializableConfiguration
import sparkdlbench.algorithm.Algorithm
import sparkdlbench.codec.{ChosenCodecs, Codec}
import sparkdlbench.config.{RunKeys, Settings, Variants, WorkerRange}
import sparkdlbench.data.{BatchPlan, DataFacts, DataSource}
import sparkdlbench.engine.EngineVariant
import sparkdlbench.loss.Loss
import sparkdlbench.model.{Initializers, ModelSpec}
import sparkdlbench.optimizer.{Optimizer, OptimizerVariant, ParameterSlice}
import sparkdlbench.rank.{DataPosition, RunContext}
import sparkdlbench.topology.Ps
import sparkdlbench.transport.RunSecret
import sparkdlbench.vector.FlatBuffer

/**
 * Everything about a run that does not change while it trains; sent to the executors once.
 *
 * @param runId
 *   unique in the application
 * @param threads
 *   compute threads of a rank
 * @param secret
 *   by which ranks of a transport of its own prove to each other that they belong to the run
 * @param submission
 *   how many times the driver has submitted the training anew after Spark gave it up
 * @param range
 *   the numbers of workers that it may have, where the number may change while it trains; `settings` has that of this submission
 * @param uncounted
 *   of `submission`, those that `recovery.resubmissions` does not count: for another number of workers, with new steps made
 * @param begunAt
 *   steps made when this submission began
 * @param initial
 *   parameters and running statistics that the run starts from; None where the model's initialisers make them
 */
final case class RunSetup(
    runId: String,
    settings: Settings,
    spec: ModelSpec,
    data: DataFacts,
    threads: Int,
    hadoop: SerializableConfiguration,
    secret: RunSecret,
    submission: Int = 0,
    initial: Option[Broadcast[Array[Array[Float]]]] = None,
    range: Option[WorkerRange] = None,
    uncounted: Int = 0,
    begunAt: Long = 0
) extends RunContext {

  def workers: Int = settings(RunKeys.workers)

  def ranks: Int = workers + Ps.ownServers(settings)
  lazy val batch: Int = RunKeys.globalBatch(settings)

  lazy val plan: BatchPlan = BatchPlan(data.trainRows, batch, workers)

  lazy val rowsAtOnce: Int = algorithm.rowsAtOnce(settings, plan)
  def dataPosition: DataPosition = DataPosition(batch, settings(RunKeys.seed), data.trainRows, data.rowsIdentity)
  def stepsPerEpoch: Int = plan.stepsPerEpoch
  def timeoutMillis: Long = settings(RunKeys.timeoutSeconds) * 1000L

  def rowsOf(step: Long): Int = plan.batchRows(plan.stepInEpoch(step))

  /** Rows that an epoch trains on: all of them, fewer where `max_steps` ends the run in it. */
  def rowsOfEpoch(epoch: Int): Long = {
    val steps = math.min(stepsPerEpoch.toLong, totalSteps - epoch.toLong * stepsPerEpoch)
    math.min(steps * batch, data.trainRows.toLong)
  }

  def totalSteps: Long = {
    val all = settings(RunKeys.epochs).toLong * stepsPerEpoch
    val limit = settings(RunKeys.maxSteps)
    if (limit > 0) math.min(limit, all) else all
  }

  def algorithm: Algorithm = Variants.find[Algorithm]("algorithm", settings(RunKeys.algorithm))
  def loss: Loss = Loss.of(settings)
  def codec: Codec = ChosenCodecs.gradient(settings)
  def parameterCodec: Codec = ChosenCodecs.parameters(settings)
  def engine: EngineVariant = Variants.find[EngineVariant]("engine", settings(RunKeys.engine))
  def dataSource: DataSource = Variants.find[DataSource]("data source", settings(RunKeys.data))

  def optimizer: OptimizerVariant = Variants.find[OptimizerVariant]("optimizer", settings(RunKeys.optimizer))

  def optimizerValues: Int = optimizer.create(1, settings).state.values.map(_.length).sum

  def startFrom(parameters: FlatBuffer): Unit = initial match {
    case Some(given) => parameters.floats.put(0, given.value(0)); ()
    case None => Initializers.fill(spec, settings(RunKeys.seed), parameters)
  }

  /** Likewise of the running statistics, which an engine has filled with what they usually start from. */
  def startStatisticsFrom(statistics: FlatBuffer): Unit =
    initial.foreach(given => statistics.floats.put(0, given.value(1)))

  def newOptimizer(from: Int, until: Int, settings: Settings): Optimizer =
    optimizer.create(ParameterSlice(from, until, spec.layout), settings)
}
