package sparkdlbench.train

import org.apache.spark.{SparkEnv, TaskContext}
import org.apache.spark.sparkdlbench.BlockStore
import sparkdlbench.common.Outcome
import sparkdlbench.config.{CheckpointKeys, RunKeys, Variants}
import sparkdlbench.data.{Batch, BatchPlan, BatchReader, RowStore, Shares, TrainingReader}
import sparkdlbench.engine.{Engine, Evaluation}
import sparkdlbench.loss.{ClassWeights, IgnoredLabel}
import sparkdlbench.metrics.{ByteCounter, Phase, PhaseTimer}
import sparkdlbench.optimizer.Optimizer
import sparkdlbench.rank.{JobRank, RankSide}
import sparkdlbench.transport.TransportVariant
import sparkdlbench.vector.{FlatBuffer, FloatOps, Slices}

import java.nio.{FloatBuffer, LongBuffer}
import java.util.concurrent.ExecutorService
import scala.reflect.ClassTag
import scala.util.Success

/** One rank in its executor: engine, rows, timers. What a topology or an exchange keeps for it is theirs. */
final class RankState(val setup: RunSetup, val rank: Int, val run: ExecutorRun) extends JobRank with AutoCloseable {
  def plan: BatchPlan = setup.plan
  private val evaluationRows = RankState.evaluationRows(setup)

  val computes: Boolean = rank < setup.workers
  private val capacity = math.max(evaluationRows, setup.rowsAtOnce)
  val engine: Engine = {
    // A rank that trains nothing computes no loss either.
    def counts =
      if (computes) RankState.classCounts(run.data.train, setup.spec.classes, IgnoredLabel.of(setup.settings))
      else new Array[Long](setup.spec.classes)
    setup.engine.load(
      setup.spec,
      capacity,
      setup.threads,
      ClassWeights.settled(setup.settings, counts),
      Variants
        .find[TransportVariant]("transport", setup.settings(RunKeys.transport))
        .vectors(setup.settings, setup.ranks)
    )
  }
  private var reader = Option.empty[TrainingReader]
  private lazy val training = {
    val opened = new TrainingReader(
      run.data.train,
      plan,
      setup.settings(RunKeys.seed),
      rank,
      run.data.augmentation,
      setup.rowsAtOnce
    )
    reader = Some(opened)
    opened
  }
  private lazy val testing = new BatchReader(run.data.test, evaluationRows)
  val timer = new PhaseTimer
  private[train] val guard = RankState.orClosed(engine)(new StepGuard(setup, engine))

  def newOptimizer(from: Int, until: Int): Optimizer =
    guard.around(setup.newOptimizer(from, until), first = from == 0 && until > 0)

  /**
   * Opens the data set, where no other rank of the executor has yet: that may take longer than ranks that are under way wait for each
   * other. A server that shares the driver's process with the workers waits for them here.
   */
  def openData(): Unit = if (computes) { val _ = training }
  else if (executorId == ExecutorRuns.DriverId) { val _ = run.data }

  /** Bytes of a sharded set that were read for training until now; 0 where its rows are held. */
  def bytesRead: Long = reader.fold(0L)(_.bytesRead)

  def rows(step: Long): Int = if (computes) training.rows(step) else 0

  def deal(shares: Shares): Unit = if (computes) training.shares = shares
  val bytes = new ByteCounter
  def blocks: BlockStore = run.blocks
  def fetchers: ExecutorService = run.fetchers

  private var exchangeSide = Option.empty[RankSide]

  def keep(side: RankSide): Unit = {
    val earlier = exchangeSide
    exchangeSide = Some(side)
    earlier.foreach(_.close())
  }

  def side[S <: RankSide](implicit kind: ClassTag[S]): S = exchangeSide match {
    case Some(kept: S) => kept
    case other =>
      throw new IllegalStateException(s"rank $rank keeps $other, where ${kind.runtimeClass.getName} was wanted")
  }

  RankState.orClosed(engine) {
    setup.startFrom(engine.parameters)
    setup.startStatisticsFrom(engine.statistics)
  }

  def parameters: FlatBuffer = engine.parameters
  def gradients: FlatBuffer = engine.gradients
  def host: String = SparkEnv.get.blockManager.blockManagerId.host
  def executorId: String = SparkEnv.get.executorId

  def computeGradient(step: Long, onBucketReady: (Int, Int) => Unit): Double = {
    timer.switch(Phase.Data)
    val batch = if (computes) training.read(step) else Batch(0, FloatBuffer.allocate(0), LongBuffer.allocate(0))
    timer.switch(Phase.Compute)
    val weight = 1.0f / setup.rowsOf(step)
    if (guard.on) guard.checked(batch.rows)(engine.step(batch, weight, (_, _) => ()))
    else engine.step(batch, weight, onBucketReady)
  }

  def computeGradientInParts(step: Long): Double = {
    val rows = this.rows(step)
    if (rows <= setup.rowsAtOnce) computeGradient(step, (_, _) => ())
    else if (guard.on) guard.checked(rows)(sumOfParts(step, rows))
    else sumOfParts(step, rows)
  }

  private def sumOfParts(step: Long, rows: Int): Double = {
    var losses = 0.0
    for (from <- 0 until rows by setup.rowsAtOnce) {
      timer.switch(Phase.Data)
      val batch = training.readPart(step, from, math.min(rows, from + setup.rowsAtOnce))
      timer.switch(Phase.Compute)
      losses += engine.step(batch, 1.0f / setup.rowsOf(step), (_, _) => ())
      if (from == 0) FloatOps.copy(gradients.floats, partsSum.floats)
      else FloatOps.addInto(partsSum.floats, gradients.floats)
    }
    FloatOps.copy(partsSum.floats, gradients.floats)
    losses
  }
  private lazy val partsSum = new FlatBuffer(parameters.length)

  /**
   * This rank's part of the test rows, on the current weights.
   *
   * @param alive
   *   called between parts of them
   */
  def evaluate(alive: () => Unit = () => ()): Evaluation = if (!computes) Evaluation(0, 0.0, 0)
  else {
    val share = Slices(setup.data.testRows, setup.workers)
    val (first, end) = (share.from(rank), share.until(rank))
    (first until end by evaluationRows)
      .map { from =>
        alive()
        engine.evaluate(testing.readRange(from, math.min(end, from + evaluationRows)))
      }
      .foldLeft(Evaluation(0, 0.0, 0))(_ + _)
  }

  private lazy val checkpoints = Checkpointing
    .store(setup, CheckpointKeys.folder)
    .map(new CheckpointWriter(setup, _, rank, rank, Checkpointing.attempt(setup, 0), RankState.isTaskKilled))

  /** Where the rank's tasks come and go: writes its part of a checkpoint, beside the steps that follow. @param epochLoss its part */
  private[train] def checkpoint(stepsMade: Long, epochLoss: Double): Unit = checkpoints.foreach { writer =>
    val statistics = if (rank == 0) RunningStatistics.state(engine.statistics) else Nil
    writer.write(stepsMade, epochLoss, exchangeSide.toSeq.flatMap(_.state) ++ statistics)
  }

  /** Waits until what `checkpoint` began is written. */
  private[train] def awaitCheckpoint(): Unit = checkpoints.foreach(_.await())

  /** Goes on from a checkpoint; before the first step. */
  private[train] def restore(at: CheckpointPlace): Unit = {
    val snapshot = at.read(setup.hadoop.value, s"rank $rank on $host (executor $executorId)")
    exchangeSide.foreach(_.restore(snapshot))
    RunningStatistics.restore(engine.statistics, snapshot)
  }

  override def close(): Unit = synchronized {
    Outcome.after(Outcome.of(exchangeSide.foreach(_.close())))(
      () => if (exchangeSide.nonEmpty) checkpoints.foreach(_.close()),
      () => reader.foreach(_.close()),
      () => RankState.release(engine),
      () => engine.close()
    )
  }
}

object RankState {
  private val isTaskKilled: () => Boolean = () => Option(TaskContext.get()).exists(_.isInterrupted())

  /** Does what follows the opening of an engine. Where that fails the engine is closed: nobody has the state then that would do it. */
  private[train] def orClosed[T](engine: Engine)(work: => T): T = Outcome.of(work) match {
    case Success(done) => done
    case failed => Outcome.after(failed)(() => release(engine), () => engine.close())
  }

  /** What its vectors lie in, where other processes map them. */
  private def release(engine: Engine): Unit =
    Seq(engine.parameters, engine.gradients).flatMap(_.file).foreach(_.release())

  /** Rows of each class, of those that count. */
  private[train] def classCounts(rows: RowStore, classes: Int, ignored: Option[Int]): Array[Long] = {
    val counts = new Array[Long](classes)
    var id = 0
    while (id < rows.rows) {
      val label = rows.label(id).toInt
      if (!ignored.contains(label)) counts(label) += 1
      id += 1
    }
    counts
  }

  /** Rows that are evaluated at once: enough to keep the cores busy, little enough to stay in the cache. */
  val EvaluationRows = 256

  /** Values between layers that an evaluation may hold at once: 256 MB. */
  private val EvaluationValues = 1L << 26

  /** Rows that are evaluated at once: fewer for large nets, but no fewer than a training step takes. */
  def evaluationRows(setup: RunSetup): Int = {
    val fitting = math.max(1L, EvaluationValues / setup.spec.shapes.map(_.map(_.toLong).product).sum)
    math.min(EvaluationRows.toLong, math.max(fitting, setup.rowsAtOnce.toLong)).toInt
  }
}
