package sparkdlbench.train

import sparkdlbench.config.CheckpointKeys
import sparkdlbench.rank.{Exchange, StateRange}

/**
 * Where a submission of a job-per-step run begins to train.
 *
 * @param step
 *   steps made before
 * @param losses
 *   sum of the losses of all rows in the epoch so far
 */
private[train] final case class JobBeginning(step: Long, losses: Double)

/**
 * The checkpoints of a job-per-step run, in the format of the one-stage shape. The driver decides when one is due; each rank writes its part
 * where it is, beside the steps that follow, or the driver writes the only one where it holds the run's whole state (topology `tree`).
 */
private[train] final class JobCheckpoints(setup: RunSetup, group: RankGroup, exchange: Exchange) extends AutoCloseable {
  private val store = Checkpointing.store(setup, CheckpointKeys.folder)
  private val everySteps = setup.settings(CheckpointKeys.every)
  private val everyNanos = (setup.settings(CheckpointKeys.everySeconds) * 1e9).toLong
  private var takenAt = System.nanoTime()
  private var heldUp = 0L
  private lazy val own = store.map(
    new CheckpointWriter(setup, _, 0, 0, Checkpointing.attempt(setup, 0), () => false, parts = Some(1))
  )

  /** Brings the ranks to the newest checkpoint, where there is one to go on from. */
  def begin(): JobBeginning = FoundCheckpoint.byDriver(setup).fold(JobBeginning(0L, 0.0)) { case (place, snapshot) =>
    group.states(_.restore(place))
    exchange.restore(snapshot)
    JobBeginning(snapshot.step, snapshot.parts.map(_.epochLoss).sum)
  }

  /** Once after every step. */
  def due(stepsMade: Long): Boolean = store.nonEmpty &&
    (stepsMade % everySteps == 0 || (everyNanos > 0 && System.nanoTime() - takenAt >= everyNanos))

  /** @param losses sum of the losses of all rows in the epoch so far */
  def write(stepsMade: Long, losses: Double): Unit = if (store.nonEmpty) {
    val start = System.nanoTime()
    exchange.settle()
    JobStatistics.share(setup, group)
    if (exchange.isAtDriver) own.foreach(_.write(stepsMade, losses, exchange.state ++ statistics))
    else group.states(rank => rank.checkpoint(stepsMade, if (rank.rank == 0) losses else 0.0))
    group.takePhases() // no step's
    takenAt = System.nanoTime()
    heldUp += takenAt - start
  }

  private def statistics: Seq[StateRange] = {
    val values = JobStatistics.of(setup, group)
    if (values.isEmpty) Nil else Seq(StateRange(RunningStatistics.Name, 0, values))
  }

  /** Waits until what was begun is written. */
  def await(): Unit = if (store.nonEmpty) {
    if (exchange.isAtDriver) own.foreach(_.await()) else group.states(_.awaitCheckpoint())
    ()
  }

  /** What checkpoints have held the steps up for since the last call. */
  def takeSeconds(): Double = {
    val seconds = heldUp / 1e9
    heldUp = 0
    seconds
  }

  override def close(): Unit = if (exchange.isAtDriver) own.foreach(_.close())
}
