package sparkdlbench.train

import org.apache.spark.sparkdlbench.{BarrierMeeting, SparkCodecs}
import org.apache.spark.{BarrierTaskContext, SparkEnv}
import sparkdlbench.algorithm.RankAlgorithm
import sparkdlbench.collective.{Announcements, VectorGather, VectorMean}
import sparkdlbench.common.{BoundedWait, DivergedException, Outcome, RunFailedException}
import sparkdlbench.config.{CheckpointKeys, Settings}
import sparkdlbench.data.Normalization
import sparkdlbench.engine.Evaluation
import sparkdlbench.metrics.{Phase, PhaseLog, PhaseRecord}
import sparkdlbench.topology.Topology
import sparkdlbench.transport.push.Mailbox
import sparkdlbench.transport.{GroupContext, OneStageTransport, RankGroups, RunSecret, TimedTransport, Transport}

import scala.collection.mutable.{ArrayBuffer, ArrayBuilder}
import scala.util.Try

/**
 * What one rank of a one-stage run brings back.
 *
 * @param weights
 *   the ranges it answers for: (first value, values)
 * @param statistics
 *   running statistics, of rank 0 alone
 * @param stepNanos
 *   length of each step since the last (re)start, in order
 * @param phases
 *   of those steps
 * @param channels
 *   what really carried its bytes
 * @param counts
 *   what the algorithm counted at this rank
 * @param best
 *   the same of the best evaluation, where it is kept
 * @param change
 *   the rows' normalisation, of rank 0 alone
 * @param left
 *   steps made when the attempt ended at a checkpoint, so that another number of workers goes on from there; then there are no
 *   `weights`. None: it trained to the end
 */
final case class RankOutcome(
    rank: Int,
    host: String,
    executorId: String,
    weights: Seq[(Int, Array[Float])],
    statistics: Array[Float],
    stepNanos: Array[Long],
    phases: PhaseRecord,
    bytes: Map[String, Long],
    engine: Map[String, String],
    channels: Map[String, String],
    epochs: Seq[EpochReport],
    groups: GroupsReport,
    counts: Map[String, Seq[Long]],
    best: Option[Best],
    change: Option[Normalization.Change] = None,
    left: Option[Long] = None
)

/** One rank of a one-stage run: the whole training loop, in a task of the barrier stage. */
final class RankTask(setup: RunSetup, context: BarrierTaskContext, report: RankReport => Unit) {
  private val group = new BarrierGroup(setup, context)
  private val attempt = group.attempt
  private val epochs = ArrayBuffer.empty[EpochReport]
  private val stepNanos = new ArrayBuilder.ofLong
  private val refusedBefore = Mailbox.refusedStreams
  private val phases = new PhaseLog(PhaseLog.stepsKept(setup.ranks))

  /** What checkpoints held the steps up for, of which no epoch has told. */
  private var checkpointNanos = 0L
  private var reportedAt = System.nanoTime()

  /** When the newest epoch ended, or the attempt began to train. */
  private var ended = 0L

  /** Of the newest step: the sum over its rows that were this rank's. */
  private var lastLoss = 0.0

  /** Of a sharded set, until the newest epoch ended. */
  private var bytesRead = 0L
  private var evaluationNanos = 0L
  private var checkpoints: Option[CheckpointWriter] = None
  private var times: CheckpointTimes = _
  private var statistics: RunningStatistics = _
  private var keeper: BestKeeper = _
  private var asks: Option[LeaveWatch] = None

  /** Steps made, once the attempt has ended at a checkpoint. */
  private var left: Option[Long] = None

  def run(): RankOutcome = {
    checkComplete()
    val executor = ExecutorRuns.acquire(setup)
    val done = Outcome.of {
      SparkCodecs.load()
      tell("builds its engine and opens its data")
      val rank = new RankState(setup, group.rank, executor)
      val trained = Outcome.of {
        rank.openData()
        tell("connects to the other ranks")
        connected(rank)
      }
      Outcome.after(trained)(() => rank.close())
    }
    Outcome.after(done)(() => ExecutorRuns.release(setup.submitted))
  }

  /**
   * Spark counts the result of a rank that had ended as the retry of its stage was decided, and then retries without that rank. Where such
   * an attempt fails, it forgets those results, and the next attempt has all ranks.
   */
  private def checkComplete(): Unit = {
    val tasks = context.getTaskInfos().length
    if (tasks != setup.ranks)
      throw new RunFailedException(
        s"Spark began attempt ${context.stageAttemptNumber()} of the training with $tasks of its ${setup.ranks} ranks; it is ended, for one with all of them."
      )
  }

  private def connected(rank: RankState): RankOutcome = {
    val transport = OneStageTransport.of(setup.settings).connect(group)
    Outcome.after(Outcome.of(trained(rank, transport)))(
      () => asks.foreach(_.close()),
      () => checkpoints.foreach(_.close()),
      () => transport.close()
    )
  }

  private def trained(rank: RankState, transport: Transport): RankOutcome = {
    val beginning = begin(rank, transport)
    train(rank, beginning.algorithm, transport, beginning.step, beginning.losses)
    checkpoints.foreach(_.await())
    outcome(rank, beginning.algorithm, transport, beginning.groups)
  }

  /**
   * Binds the algorithm, and brings it to where the newest checkpoint is. Not in the frame that `train` is called from: what that one refers to
   * stays in memory as long as it trains, and a checkpoint holds the vectors of all ranks.
   */
  private def begin(rank: RankState, transport: Transport): Beginning = {
    tell("looks for checkpoints")
    val found = FoundCheckpoint.newest(setup, group, attempt, place)
    val groups = FoundCheckpoint.groups(setup.runId, group.size, attempt, transport.groups, found)
    if (group.rank == 0) report(groups)
    val timed = new TimedTransport(transport, rank.timer, groups.groups)
    val seconds =
      if (setup.settings(CheckpointKeys.folder).isEmpty) 0.0 else setup.settings(CheckpointKeys.everySeconds)
    // Each opens lanes of its own, at every rank in this order.
    val announcements = if (seconds > 0 || setup.range.nonEmpty) Some(new Announcements(timed)) else None
    statistics = new RunningStatistics(rank.engine.statistics, group.rank, meanOf(rank, timed))
    gatherOver(timed).foreach(rank.engine.join)
    keeper = new BestKeeper(setup.settings, BestKeeper.sums(setup.settings, timed))
    val algorithm = bind(rank, timed)
    found.foreach { one =>
      algorithm.restore(one.snapshot)
      statistics.restore(one.snapshot)
    }
    val step = found.fold(0L)(_.snapshot.step)
    if (setup.range.nonEmpty && group.rank == 0)
      asks = Some(new LeaveWatch(setup.runId, () => DriverChannel.leaves(LeaveQuestion(setup.runId, attempt))))
    val clock = announcements.map(checkpointClock(_, (seconds * 1e9).toLong, step))
    checkpoints = openCheckpoints(groups.groups)
    times = new CheckpointTimes(setup.settings(CheckpointKeys.every), clock)
    Beginning(algorithm, groups, step, found.fold(0.0)(_.lossesSoFar(group)))
  }

  private def checkpointClock(announcements: Announcements, everyNanos: Long, step: Long): CheckpointClock = {
    val lookNanos = if (setup.range.isEmpty) Long.MaxValue else RankTask.ReportNanos
    new CheckpointClock(
      announcements,
      everyNanos,
      step,
      wantsEnd = () => asks.exists(_.leaves),
      lookNanos = lookNanos
    )
  }

  private def skipped(rank: RankState): Map[String, Seq[Long]] =
    if (rank.guard.on) Map(NonFinite.Skipped -> Seq(rank.guard.skipped)) else Map.empty

  /** Streams of other attempts that came to this executor, told by one of its ranks. */
  private def refusedHere(groups: GroupsReport): Map[String, Seq[Long]] = {
    val refused = Mailbox.refusedStreams - refusedBefore
    if (refused == 0 || groups.placed.members.exists(here => here.contains(group.rank) && here.head != group.rank))
      Map.empty
    else Map("refused_streams" -> Seq(refused))
  }

  private def place: String =
    s"rank ${group.rank} on ${SparkEnv.get.blockManager.blockManagerId.host} (executor ${SparkEnv.get.executorId})"

  private def tell(doing: String): Unit = report(StartReport(setup.runId, attempt, group.rank, place, doing))

  private def meanOf(rank: RankState, transport: Transport): Option[VectorMean] =
    if (rank.engine.statistics.length == 0 || group.size == 1) None
    else Some(new VectorMean(transport, rank.engine.statistics, setup.workers))

  private def gatherOver(transport: Transport): Option[VectorGather] = {
    val lengths = setup.spec.exchanges
    if (lengths.isEmpty || group.size == 1) None else Some(new VectorGather(transport, lengths))
  }

  private def bind(rank: RankState, transport: Transport): RankAlgorithm =
    setup.algorithm.start(rank, transport, Topology.of(setup.settings))

  private def openCheckpoints(groups: RankGroups): Option[CheckpointWriter] = {
    val lowest = groups.members.find(_.contains(group.rank)).get.head
    Checkpointing
      .store(setup, CheckpointKeys.folder)
      .map(
        new CheckpointWriter(
          setup,
          _,
          group.rank,
          lowest,
          attempt,
          () => context.isInterrupted()
        )
      )
  }

  private def train(
      rank: RankState,
      algorithm: RankAlgorithm,
      transport: Transport,
      from: Long,
      lossesSoFar: Double
  ): Unit = {
    val steps = setup.totalSteps
    var step = from
    var losses = lossesSoFar
    ended = System.nanoTime()
    while (step < steps && left.isEmpty && !keeper.isOver) {
      val epoch = (step / setup.stepsPerEpoch).toInt
      val end = math.min(steps, (epoch + 1L) * setup.stepsPerEpoch)
      losses = trainUntil(rank, algorithm, transport, step, end, losses)
      if (left.isEmpty) {
        step = end
        endEpoch(rank, algorithm, transport, epoch, step, losses)
        losses = 0.0
      }
    }
  }

  private def endEpoch(
      rank: RankState,
      algorithm: RankAlgorithm,
      transport: Transport,
      epoch: Int,
      step: Long,
      losses: Double
  ): Unit = {
    val isLast = step == setup.totalSteps
    val stepped = System.nanoTime()
    val evaluation =
      if (Evaluations.due(setup, epoch, isLast)) Some(evaluate(rank, algorithm, epoch, step)) else None
    val now = System.nanoTime()
    val seconds = EpochSeconds((now - ended) / 1e9, (now - stepped) / 1e9, checkpointNanos / 1e9)
    ended = now
    checkpointNanos = 0
    val done = EpochReport(
      setup.runId,
      attempt,
      group.rank,
      group.size,
      setup.workers,
      epoch,
      seconds,
      losses,
      lastLoss,
      rank.bytesRead - bytesRead,
      evaluation,
      status(rank, transport),
      isLast = isLast || keeper.isOver
    )
    epochs += done
    bytesRead = rank.bytesRead
    report(done)
    // All ranks know the last step; an announcement then might find a rank that has left already.
    checkpoints.filter(_ => done.isLast || times.due(step)).foreach(write(_, step, 0.0, algorithm))
  }

  private def trainUntil(
      rank: RankState,
      algorithm: RankAlgorithm,
      transport: Transport,
      from: Long,
      until: Long,
      lossesSoFar: Double
  ): Double = {
    var losses = lossesSoFar
    var step = from
    rank.timer.restart(Phase.Data)
    while (step < until && left.isEmpty) {
      if (context.isInterrupted()) throw new CancelledException
      val loss = made(algorithm, step)
      losses += loss
      lastLoss = loss
      step += 1
      val nanos = count(rank)
      reportProgress(step, loss, nanos, rank, transport)
      if (step < until && checkpoints.exists(_ => times.due(step))) {
        write(checkpoints.get, step, losses, algorithm)
        rank.timer.restart(Phase.Data)
      }
    }
    losses
  }

  private def write(writer: CheckpointWriter, step: Long, losses: Double, algorithm: RankAlgorithm): Unit = {
    val start = System.nanoTime()
    val state = algorithm.state // first: until it is there, other ranks may still need this one
    statistics.share(step)
    val ends = step < setup.totalSteps && times.ends
    times.restart()
    writer.write(step, losses, state ++ statistics.state)
    if (ends) left = Some(step)
    checkpointNanos += System.nanoTime() - start
  }

  private def count(rank: RankState): Long = {
    val nanos = phases.add(rank.timer.take())
    stepNanos += nanos
    nanos
  }

  private def reportProgress(
      reached: Long,
      loss: Double,
      nanos: Long,
      rank: RankState,
      transport: Transport
  ): Unit =
    if (group.rank == 0 && System.nanoTime() - reportedAt > RankTask.ReportNanos) {
      reportedAt = System.nanoTime()
      val now = status(rank, transport)
      val (mean, rate) = (loss / math.max(1, rank.rows(reached - 1)), setup.rowsOf(reached - 1) * 1e9 / nanos)
      report(StepReport(setup.runId, attempt, reached, mean, rate, now))
    }

  private def status(rank: RankState, transport: Transport): RankStatus =
    RankStatus(group.rank, rank.host, rank.executorId, phases.steps, phases.nanos, transport.bytesSent)

  private def evaluate(rank: RankState, algorithm: RankAlgorithm, epoch: Int, step: Long): Evaluation = {
    val began = System.nanoTime()
    // One that takes a second or more is reported each time: that is at most once a second, too.
    if (group.rank == 0 && (began - reportedAt > RankTask.ReportNanos || evaluationNanos > RankTask.ReportNanos)) {
      reportedAt = began
      report(DoingReport(setup.runId, attempt, RunProgress.Evaluating))
    }
    algorithm.drain()
    statistics.share(step)
    val found = rank.evaluate(() => algorithm.alive())
    try NonFinite.check(setup, step - 1, found)
    catch { case diverged: DivergedException => throw told(diverged, step - 1) }
    keeper.look(epoch, found, algorithm.weights, statistics.result)
    evaluationNanos = System.nanoTime() - began
    found
  }

  /**
   * A step's loss. Whoever finds that the run has diverged, here or in the update (`StepGuard`), tells the driver first: to the other ranks
   * it is a rank that has left, and what they say of that may reach the driver before this rank's own failure.
   */
  private def made(algorithm: RankAlgorithm, step: Long): Double =
    try {
      val loss = algorithm.step(step)
      if (!NonFinite.isFinite(loss) && NonFinite.stops(setup.settings))
        throw NonFinite.diverged(setup, step, s"the training loss is $loss")
      loss
    } catch { case diverged: DivergedException => throw told(diverged, step) }

  /** The driver hears of it before the task's end, and so before it retries the stage. */
  private def told(diverged: DivergedException, step: Long): DivergedException = {
    report(DivergedReport(setup.runId, attempt, step, diverged.getMessage))
    diverged
  }

  private def outcome(
      rank: RankState,
      algorithm: RankAlgorithm,
      transport: Transport,
      groups: GroupsReport
  ): RankOutcome = {
    algorithm.drain()
    left.foreach { step =>
      // Its executor may be on its way out, and what the task brings back be lost with it.
      Try(DriverChannel.reportAwaited(LeftReport(setup.runId, attempt, group.rank, group.size, step)))
    }
    statistics.share(left.getOrElse(setup.totalSteps))
    val facts = rank.engine.facts
    RankOutcome(
      group.rank,
      rank.host,
      rank.executorId,
      if (left.isEmpty) algorithm.weights else Nil,
      statistics.result,
      stepNanos.result(),
      phases.record,
      transport.bytesSent,
      facts,
      transport.facts,
      epochs.toSeq,
      groups,
      algorithm.counts ++ refusedHere(groups) ++ skipped(rank),
      keeper.best,
      if (group.rank == 0) rank.run.data.change else None,
      left
    )
  }
}

/**
 * Where a rank begins to train.
 *
 * @param step
 *   steps made before
 * @param losses
 *   sum of the losses of its rows in the epoch so far
 */
private final case class Beginning(algorithm: RankAlgorithm, groups: GroupsReport, step: Long, losses: Double)

private object RankTask {

  val ReportNanos = 1000000000L
}

/**
 * The rendezvous of a barrier stage: over the driver's rendezvous where the session has the plugin, else by Spark's own. All meetings of an attempt
 * are over within `start_timeout` of this rank's start, whether the driver hears of them or not: without the plugin it does not, and Spark's own
 * wait may last a year (`spark.barrier.sync.timeout`).
 */
private[train] final class BarrierGroup(setup: RunSetup, context: BarrierTaskContext) extends GroupContext {
  val rank: Int = context.partitionId()

  /** Counted over the run's submissions. */
  val attempt: Int = Checkpointing.attempt(setup, context.stageAttemptNumber())
  def size: Int = setup.ranks
  def attemptId: String = s"${setup.runId}-${setup.submission}-${context.stageAttemptNumber()}"
  def secret: RunSecret = setup.secret
  def settings: Settings = setup.settings
  def timeoutMillis: Long = setup.timeoutMillis
  private var gathered = 0
  private val limit = settings(CheckpointKeys.startSeconds)
  private val end = System.nanoTime() + (limit + BarrierGroup.GraceSeconds) * 1000000000L

  def allGather(text: String): IndexedSeq[String] = {
    val leftMillis = math.max(1L, (end - System.nanoTime()) / 1000000L)
    gathered += 1
    if (SparkEnv.get.executorId == ExecutorRuns.DriverId)
      LocalRendezvous.allGather(s"$attemptId-$gathered", rank, size, text, leftMillis, isKilled)
    else
      DriverChannel.rendezvous.fold(bySpark(text, leftMillis))(byDriver(_, text, leftMillis))
  }

  private def byDriver(client: RendezvousClient, text: String, millis: Long): IndexedSeq[String] = {
    val meeting = RankMeeting(setup.runId, attempt, size, gathered)
    met(DriverRendezvous.allGather(client, meeting, rank, text, millis, isKilled))
  }

  /** In a thread of its own, as Spark's wait hears of no interrupt. */
  private def bySpark(text: String, millis: Long): IndexedSeq[String] = {
    var ended = false
    try {
      val outcome = BoundedWait.of(s"sparkdl-meeting-${setup.runId}-$rank", millis, isKilled)(
        context.allGather(text).toIndexedSeq
      )
      ended = outcome.nonEmpty
      met(outcome) // before it leaves, for then Spark kills this task as well
    } finally if (!ended) BarrierMeeting.leave(context, "the rank waits no longer for the others")
  }

  private def met(outcome: Option[Try[IndexedSeq[String]]]): IndexedSeq[String] =
    outcome.getOrElse(throw if (isKilled) new CancelledException else late).get

  private def late: RunFailedException = {
    val host = SparkEnv.get.blockManager.blockManagerId.host
    new RunFailedException(
      s"Rank $rank on host $host, executor ${SparkEnv.get.executorId}, had not met all ${size - 1} other ranks $limit s after it began (start_timeout, " +
        s"meeting $gathered). Look into the logs of the other executors and at what they read, or raise start_timeout where opening the data takes " +
        "longer; with spark.plugins=sparkdlbench.SparkDLPlugin the driver says what each rank is about."
    )
  }

  def isKilled: Boolean = context.isInterrupted()
}

private object BarrierGroup {

  /** The driver's own complaint, where it can make one, names all ranks: it shall come first. */
  val GraceSeconds = 5
}
