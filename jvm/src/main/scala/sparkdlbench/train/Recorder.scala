package sparkdlbench.train

import sparkdlbench.config.CheckpointKeys
import sparkdlbench.engine.Evaluation
import sparkdlbench.metrics.{Phase, PhaseLog, PhaseRecord, StepPhases, Waits}
import sparkdlbench.rank.Placement
import sparkdlbench.results.{RunFolder, RunLogger}
import sparkdlbench.transport.RankGroups

import scala.collection.immutable.ListMap
import scala.collection.mutable
import scala.collection.mutable.ArrayBuffer

/**
 * How long an epoch took, seconds.
 *
 * @param whole
 *   from the end of the epoch before, with what follows
 * @param evaluation
 *   of the test rows, and what makes all ranks ready for it
 * @param checkpoint
 *   what checkpoints held the steps up for: those in the epoch and the one just before it
 */
final case class EpochSeconds(whole: Double, evaluation: Double, checkpoint: Double)

/** One epoch as it stands in `history`. */
final case class EpochRecord(epoch: Int, seconds: EpochSeconds, trainLoss: Double, test: Option[Evaluation]) {
  def toMap: ListMap[String, Any] = ListMap[String, Any](
    "epoch" -> epoch,
    "seconds" -> seconds.whole,
    "seconds_evaluation" -> seconds.evaluation,
    "seconds_checkpoint" -> seconds.checkpoint,
    "train_loss" -> trainLoss,
    "test_loss" -> test.map(_.loss),
    "test_accuracy" -> test.flatMap(_.classified)
  ) ++ test.toSeq.flatMap(_.measures("test_"))
}

/**
 * What a training loop tells about itself: kept for the summary, written as events, shown as progress. Driver side, one
 * thread. The clock starts when it is made.
 */
final class Recorder(
    setup: RunSetup,
    folder: RunFolder,
    live: LiveRun,
    startNanos: Long,
    loggers: Seq[RunLogger] = Nil
) {
  private val progress = live.progress
  private val notices = ArrayBuffer.empty[ListMap[String, Any]]
  private val changes = ArrayBuffer.empty[ListMap[String, Any]]
  private val epochs = ArrayBuffer.empty[EpochRecord]
  private val stepNanos = ArrayBuffer.empty[Long]
  private val phases = Array.fill(Phase.names.size)(0L)

  /** Of each logger, how often in a row: one whose server is gone must not keep the training waiting at every epoch. */
  private val failures = mutable.Map.empty[RunLogger, Int].withDefaultValue(0)

  /** The setup of the newest submission, which may have another number of workers. */
  private var current = setup
  private var epochStart = 0.0
  private var firstEnd: Option[Double] = None
  private var lastEnd = 0.0
  private var evaluation: Option[Evaluation] = None
  private var groups: Option[RankGroups] = None

  /** Host and executor of each rank. */
  private var places: IndexedSeq[(String, String)] = IndexedSeq.empty

  /** What the ranks of a job-per-step run do, step by step. */
  private var logs: IndexedSeq[PhaseLog] = IndexedSeq.empty

  /** What those of a one-stage run did. */
  private var staged: IndexedSeq[PhaseRecord] = IndexedSeq.empty
  private var counts = ListMap.empty[String, Seq[Long]]
  private var rowsSoFar = 0L
  private var steppingNanos = 0L

  private def seconds: Double = (System.nanoTime() - startNanos) / 1e9

  def history: Seq[EpochRecord] = epochs.toSeq

  /** Since the run began. */
  def millis: Long = (seconds * 1000).toLong

  def epochStarted(epoch: Int): Unit = {
    epochStart = if (epochs.isEmpty) seconds else lastEnd
    folder.event("epoch_start", None, "epoch_num" -> (epoch + 1))
  }

  /** Where the ranks of a job-per-step run are. */
  def placed(placements: Seq[Placement]): Unit = {
    // Of the steps since the last (re)start, as in the other shape.
    stepNanos.clear()
    phases.indices.foreach(phases(_) = 0L)
    places = placements.map(each => (each.host, each.executorId)).toIndexedSeq
    logs = places.map(_ => new PhaseLog(PhaseLog.stepsKept(places.size)))
    live.placed(placements)
  }

  /** A step of a job-per-step run; its phases' sum is its time. */
  def stepDone(step: Long, rows: Int, lossSum: Double, stepPhases: StepPhases): Unit = {
    val nanos = stepPhases.critical.sum
    stepNanos += nanos
    steppingNanos += nanos
    rowsSoFar += rows
    phases.indices.foreach(phase => phases(phase) += stepPhases.critical(phase))
    logs.zip(stepPhases.ranks).foreach { case (log, of) => log.add(of) }
    live.stepDone(stepPhases)
    val rate = if (steppingNanos == 0) 0.0 else rowsSoFar * 1e9 / steppingNanos
    progress.stepDone(step + 1, lossSum / math.max(1, rows), rate)
  }

  /** Progress of a one-stage run, whose steps are counted in the ranks. */
  def progressed(step: Long, loss: Double, rowsPerSecond: Double): Unit = progress.stepDone(step, loss, rowsPerSecond)

  /** What the run does where it makes no steps. */
  def does(what: String): Unit = progress.does(what)

  /** Something befell the run, which may go on all the same. From any thread. */
  def noticed(notice: Notice): Unit = notices.synchronized {
    val at = ListMap[String, Any]("rank" -> notice.rank, "host" -> notice.host, "executor" -> notice.executor)
    folder.event(notice.kind, None, at.toSeq :+ ("reason" -> notice.reason): _*)
    val head = ListMap[String, Any]("kind" -> notice.kind, "seconds" -> seconds)
    notices += (head ++ at + ("reason" -> notice.reason))
    progress.noticed(notice.line)
  }

  /** Where one rank of a one-stage run is. */
  def told(status: RankStatus): Unit = live.told(status)

  /**
   * The steps of a one-stage run, by rank. A step and its phases are the mean over the ranks that compute, so that phases add
   * up to steps and steps to no more than the epochs: ranks begin a step at different moments, and the longest of each step
   * would count such a shift twice.
   *
   * @param rankNanos
   *   each rank's length of every step
   * @param at
   *   each rank's host and executor
   */
  def steps(rankNanos: Seq[Array[Long]], rankPhases: Seq[PhaseRecord], at: Seq[(String, String)]): Unit = {
    val workers = current.workers
    val (computing, phasesOf) = (rankNanos.take(workers), rankPhases.take(workers))
    staged = rankPhases.toIndexedSeq
    places = at.toIndexedSeq
    computing.head.indices.foreach(step => stepNanos += computing.map(_(step)).sum / workers)
    phases.indices.foreach(phase => phases(phase) += phasesOf.map(_.nanos(phase)).sum / workers)
  }

  private def records: IndexedSeq[PhaseRecord] = if (logs.isEmpty) staged else logs.map(_.record)

  /** Payload bytes of all ranks so far, by channel. */
  def sent(bytes: Map[String, Long]): Unit = live.sent(bytes)

  /** What the algorithm counted at each rank: the ranks' sums, place by place. */
  def counted(ranks: Seq[Map[String, Seq[Long]]]): Unit = counts = ListMap(
    ranks.flatten.groupBy(_._1).toSeq.sortBy(_._1).map { case (name, each) =>
      name -> each.map(_._2).reduce((one, other) => one.zipAll(other, 0L, 0L).map { case (a, b) => a + b })
    }: _*
  )

  /** The ranks that sum in memory first, of the newest attempt; None while no rank has said so. */
  def rankGroups: Option[RankGroups] = groups

  /**
   * An attempt began.
   *
   * @param placed
   *   the ranks that share a process
   * @param before
   *   the groups in the checkpoint that it goes on from
   * @param from
   *   steps made when it began
   */
  def grouped(used: RankGroups, placed: RankGroups, before: Option[RankGroups], from: Long): Unit = {
    groups = Some(used)
    progress.attemptBegan()
    progress.does("training")
    folder.event(
      "rank_groups",
      used.members,
      "processes" -> placed.members,
      "before" -> before.map(_.members),
      "from_step" -> from,
      "bits_may_differ" -> before.exists(_ != used)
    )
  }

  /**
   * Spark gave the training up, and it is submitted anew.
   *
   * @param executors
   *   which came and which left since the submission before, in words
   */
  def resubmitted(reason: String, next: RunSetup, executors: String = ""): Unit = {
    val counted =
      if (next.range.nonEmpty) ""
      else s" (${next.submission} of ${next.settings(CheckpointKeys.resubmissions)})"
    progress.noticed(s"training submitted again$counted with ${next.workers} workers: $reason")
    folder.event("resubmitted", None, "reason" -> reason, "workers" -> next.workers)
    goesOn(next, next.begunAt, if (executors.isEmpty) reason else executors)
  }

  /**
   * The training goes on under its next submission, from a checkpoint; with another number of workers that is told.
   *
   * @param step
   *   steps made
   * @param reason
   *   why the number is another one
   */
  def goesOn(next: RunSetup, step: Long, reason: String): Unit = {
    val (from, to) = (current.workers, next.workers)
    current = next
    if (from == to) live.resubmitted(to)
    else {
      val why = if (reason.isEmpty) "the number of slots changed" else reason
      val line = s"workers changed from $from to $to after step $step: $why"
      progress.noticed(line)
      live.resubmitted(to, Some(line))
      folder.event("workers_changed", to, "from" -> from, "to" -> to, "step" -> step, "reason" -> why)
      changes += ListMap[String, Any]("seconds" -> seconds, "from" -> from, "to" -> to, "step" -> step, "reason" -> why)
    }
  }

  /** Each change of the number of workers: when, from and to which, after which step, and why. */
  def workerChanges: Seq[ListMap[String, Any]] = changes.toList

  /** A job-per-step run trains, or goes on after `from` steps. */
  def begins(from: Long): Unit = {
    progress.attemptBegan()
    progress.does("training")
    folder.event("attempt_began", None, "from_step" -> from, "workers" -> current.workers)
  }

  def evaluated(epoch: Int, result: Evaluation): Unit = {
    evaluation = Some(result)
    val about = Seq[(String, Any)]("epoch_num" -> (epoch + 1), "loss" -> result.loss, "rows" -> result.rows)
    result.errors match {
      case Some(errors) =>
        folder.event("eval_rmse", errors.rmse, about :+ ("mae" -> errors.mae) :+ ("r2" -> errors.r2): _*)
      case None => folder.event("eval_accuracy", result.accuracy, about ++ result.measures(""): _*)
    }
    progress.evaluated(result)
  }

  /** What the ranks read of a sharded set in an epoch, bytes by rank; the next epoch's first rows are among them. */
  def dataRead(epoch: Int, bytes: Seq[Long]): Unit =
    folder.event("data_read", bytes.sum, "epoch_num" -> (epoch + 1), "bytes_by_rank" -> bytes)

  /**
   * The end of an epoch in the driver's own loop.
   *
   * @param evaluationSeconds
   *   what its evaluation took
   * @param checkpointSeconds
   *   what checkpoints held its steps up for
   */
  def epochStopped(epoch: Int, trainLoss: Double, evaluationSeconds: Double, checkpointSeconds: Double): Unit =
    epochStopped(epoch, trainLoss, EpochSeconds(seconds - epochStart, evaluationSeconds, checkpointSeconds))

  /** @param measured by the ranks themselves */
  def epochStopped(epoch: Int, trainLoss: Double, measured: EpochSeconds): Unit = {
    lastEnd = seconds
    if (firstEnd.isEmpty) firstEnd = Some(lastEnd)
    folder.event("epoch_stop", None, "epoch_num" -> (epoch + 1), "train_loss" -> trainLoss)
    epochs += EpochRecord(epoch + 1, measured, trainLoss, evaluation)
    logging { to =>
      to.scalar("loss/train", epoch + 1L, trainLoss)
      evaluation.foreach { found =>
        to.scalar("loss/test", epoch + 1L, found.loss)
        found.classified.foreach(to.scalar("accuracy/test", epoch + 1L, _))
        found.measures("").foreach { case (name, value) =>
          value.foreach(to.scalar(s"$name/test", epoch + 1L, _))
        }
      }
      to.scalar("seconds", epoch + 1L, seconds)
    }
    progress.epochStopped(epoch + 1)
    evaluation = None
  }

  /** The run is over: for the loggers. */
  def ended(status: String): Unit = logging(_.ended(status))

  /** Nothing more comes, for the loggers. */
  def close(): Unit = loggers.foreach(trying(_)(_.close()))

  /** A logger that fails ends no run; the events say what it lost. */
  private def logging(use: RunLogger => Unit): Unit =
    loggers.filter(failures(_) < Recorder.MostFailures).foreach(trying(_)(use))

  private def trying(logger: RunLogger)(use: RunLogger => Unit): Unit =
    try { use(logger); failures(logger) = 0 }
    catch {
      case error: java.io.IOException =>
        failures(logger) += 1
        val last = if (failures(logger) == Recorder.MostFailures) " Nothing more is sent to it." else ""
        folder.event("logging_failed", logger.name, "reason" -> s"${error.getMessage}$last")
    }

  /** `final` of the summary. */
  def finals: ListMap[String, Any] = {
    val last = epochs.reverseIterator.flatMap(_.test).take(1).toSeq.headOption
    ListMap[String, Any](
      "test_accuracy" -> last.flatMap(_.classified),
      "test_loss" -> last.map(_.loss),
      "train_loss" -> epochs.lastOption.map(_.trainLoss),
      "seconds_total" -> seconds,
      "seconds_prepare" -> secondsPrepared,
      "seconds_per_epoch_median" -> Recorder.median(epochs.map(_.seconds.whole)),
      "ms_per_step_median" -> Recorder.median(stepNanos.map(_ / 1e6)),
      "steps" -> stepNanos.size
    ) ++ last.toSeq.flatMap(_.measures("test_"))
  }

  /** Seconds from the start of the run's clock to the first step; None before an epoch has ended. */
  def secondsPrepared: Option[Double] = firstEnd.map { first =>
    // Without the plugin the ends of all epochs are told at the end of the run; after a loss there is time between them.
    math.max(0.0, math.min(first - epochs.head.seconds.whole, lastEnd - epochs.map(_.seconds.whole).sum))
  }

  /** Mean milliseconds a step, by phase. */
  def phasesMillis: ListMap[String, Double] = ListMap(Phase.names.indices.map { phase =>
    Phase.names(phase) -> phases(phase) / 1e6 / math.max(1, stepNanos.size)
  }: _*)

  /** Every step's milliseconds, in order. */
  def stepMillis: Seq[Double] = stepNanos.map(_ / 1e6).toSeq

  private def ranks: Seq[ListMap[String, Any]] = {
    val each = records
    val waits = new Waits(each.take(current.workers))
    each.zip(places).zipWithIndex.map { case ((record, (host, executor)), rank) =>
      ListMap[String, Any](
        "rank" -> rank,
        "host" -> host,
        "executor" -> executor,
        "phases_ms" -> ListMap(Phase.names.zip(record.phasesMillis): _*),
        "made_others_wait_s" -> waits.causedSeconds(rank)
      )
    }
  }

  /** `phases.json`: what each rank did in the steps that were kept. None where no step was kept. */
  def phaseSteps: Option[ListMap[String, Any]] = {
    val each = records
    if (each.forall(_.keptSteps == 0)) None
    else {
      val waits = new Waits(each.take(current.workers))
      Some(
        ListMap[String, Any](
          "schema" -> RunFolder.Schema,
          "every" -> each.head.every,
          "ranks" -> each.zipWithIndex.map { case (record, rank) =>
            ListMap[String, Any]("rank" -> rank, "phases_ms" -> Recorder.keptPhases(record))
          },
          "last" -> waits.last,
          "others_waited_ms" -> waits.othersMillis.map(Recorder.rounded)
        )
      )
    }
  }

  def summary(status: String, bytes: Map[String, Long], error: Option[String]): ListMap[String, Any] =
    ListMap[String, Any](
      "schema" -> RunFolder.Schema,
      "status" -> status,
      "error" -> error,
      "final" -> finals,
      "phases_ms" -> phasesMillis,
      "ranks" -> ranks,
      "bytes" -> ListMap(bytes.toSeq.sortBy(_._1): _*),
      "counts" -> counts,
      "variant" -> Recorder.variant(setup),
      "workers" -> current.workers,
      "workers_at_start" -> setup.workers,
      "workers_range" -> setup.range.map(_.toString),
      "worker_changes" -> workerChanges,
      "servers" -> (current.ranks - current.workers),
      "batch" -> setup.batch,
      "notices" -> notices.synchronized(notices.toList),
      "history" -> history.map(_.toMap)
    )
}

object Recorder {
  private val MostFailures = 3

  def median(values: scala.collection.Seq[Double]): Option[Double] =
    if (values.isEmpty) None
    else {
      val sorted = values.sorted
      Some((sorted((sorted.size - 1) / 2) + sorted(sorted.size / 2)) / 2)
    }

  /** Milliseconds of the kept steps, by phase; phases that never occur are left out. */
  private def keptPhases(record: PhaseRecord): ListMap[String, Seq[Double]] = ListMap(
    Phase.names.indices.filter(record.nanos(_) > 0).map { phase =>
      Phase.names(phase) -> (0 until record.keptSteps).map(step => rounded(record.millis(step, phase).toDouble))
    }: _*
  )

  /** To a tenth of a microsecond. */
  private def rounded(millis: Double): Double = math.round(millis * 1e4) / 1e4

  def variant(setup: RunSetup): ListMap[String, String] = {
    import sparkdlbench.config.RunKeys
    ListMap(
      "algorithm" -> setup.settings(RunKeys.algorithm),
      "topology" -> setup.settings(RunKeys.topology),
      "transport" -> setup.settings(RunKeys.transport),
      "codec" -> setup.settings(RunKeys.codec)
    )
  }
}
