package sparkdlbench.train

import org.apache.spark.SparkEnv
import sparkdlbench.config.RunKeys
import sparkdlbench.data.{BatchPlan, BatchReader, TrainingReader}
import sparkdlbench.engine.{Engine, Evaluation, FlatBuffer}
import sparkdlbench.metrics.{ByteCounter, Phase, PhaseTimer}
import sparkdlbench.model.Initializers
import sparkdlbench.topology.Slices

/** One rank in its executor: engine, rows, timers. What a topology or an exchange keeps for it is theirs. */
final class RankState(val setup: RunSetup, val rank: Int, val run: ExecutorRun) extends AutoCloseable {
  import RankState._

  def plan: BatchPlan = setup.plan
  private val capacity = math.max(EvaluationRows, plan.maxShare)
  val engine: Engine = setup.engine.load(setup.spec, capacity, setup.threads, setup.settings)
  private val training = new TrainingReader(run.data.train, plan, setup.settings(RunKeys.seed), rank)
  private val testing = new BatchReader(run.data.test, EvaluationRows)
  val timer = new PhaseTimer
  val bytes = new ByteCounter

  /** Whatever the run's exchange keeps at this rank between jobs. */
  var exchangeState: AutoCloseable = _

  Initializers.fill(setup.spec, setup.settings(RunKeys.seed), engine.parameters)

  def parameters: FlatBuffer = engine.parameters
  def gradients: FlatBuffer = engine.gradients
  def host: String = SparkEnv.get.blockManager.blockManagerId.host
  def executorId: String = SparkEnv.get.executorId

  /**
   * Loss and gradient of this rank's share of the step's global batch.
   *
   * The timer is left in the compute phase.
   *
   * @param step
   *   number of the step from the start of the run
   * @return
   *   the sum of the rows' losses
   */
  def computeGradient(step: Long, onBucketReady: (Int, Int) => Unit): Double = {
    timer.switch(Phase.Data)
    val batch = training.read(step)
    timer.switch(Phase.Compute)
    engine.step(batch, 1.0f / setup.rowsOf(step), onBucketReady)
  }

  /** This rank's part of the test rows, on the current weights. */
  def evaluate(): Evaluation = {
    val share = Slices(setup.data.testRows, setup.workers)
    val (first, end) = (share.from(rank), share.until(rank))
    (first until end by EvaluationRows)
      .map(from => engine.evaluate(testing.readRange(from, math.min(end, from + EvaluationRows))))
      .foldLeft(Evaluation(0, 0.0, 0))(_ + _)
  }

  override def close(): Unit = {
    if (exchangeState != null) exchangeState.close()
    engine.close()
  }
}

object RankState {

  /** Rows that are evaluated at once: enough to keep the cores busy, little enough to stay in the cache. */
  val EvaluationRows = 256
}
