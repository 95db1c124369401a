package sparkdlbench.results

import sparkdlbench.engine.Evaluation
import sparkdlbench.metrics.Phase
import sparkdlbench.train.{LiveRun, RankStatus, RunSetup}
import sparkdlbench.transport.RankGroups

import scala.collection.immutable.ListMap
import scala.collection.mutable.ArrayBuffer

/** One epoch as it stands in `history`. */
final case class EpochRecord(epoch: Int, seconds: Double, trainLoss: Double, test: Option[Evaluation]) {
  def toMap: ListMap[String, Any] = ListMap(
    "epoch" -> epoch,
    "seconds" -> seconds,
    "train_loss" -> trainLoss,
    "test_loss" -> test.map(_.loss),
    "test_accuracy" -> test.map(_.accuracy)
  )
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
  private val epochs = ArrayBuffer.empty[EpochRecord]
  private val stepNanos = ArrayBuffer.empty[Long]
  private val phases = Array.fill(Phase.names.size)(0L)
  private var epochStart = 0.0
  private var evaluation: Option[Evaluation] = None
  private var groups: Option[RankGroups] = None
  private var ranks: Seq[ListMap[String, Any]] = Nil
  private var counts = ListMap.empty[String, Seq[Long]]
  private var rowsSoFar = 0L
  private var steppingNanos = 0L

  private def seconds: Double = (System.nanoTime() - startNanos) / 1e9

  def history: Seq[EpochRecord] = epochs.toSeq

  /** Since the run began. */
  def millis: Long = (seconds * 1000).toLong

  def epochStarted(epoch: Int): Unit = {
    epochStart = seconds
    folder.event("epoch_start", None, "epoch_num" -> (epoch + 1))
  }

  /** @param phaseNanos exposed nanoseconds by phase, their sum is the step's time */
  def stepDone(step: Long, rows: Int, lossSum: Double, phaseNanos: Array[Long]): Unit = {
    val nanos = phaseNanos.sum
    stepNanos += nanos
    steppingNanos += nanos
    rowsSoFar += rows
    phaseNanos.indices.foreach(phase => phases(phase) += phaseNanos(phase))
    live.stepDone(phaseNanos)
    val rate = if (steppingNanos == 0) 0.0 else rowsSoFar * 1e9 / steppingNanos
    progress.stepDone(step + 1, lossSum / math.max(1, rows), rate)
  }

  /** Progress of a one-stage run, whose steps are counted in the ranks. */
  def progressed(step: Long, loss: Double, rowsPerSecond: Double): Unit = progress.stepDone(step, loss, rowsPerSecond)

  /** Where one rank of a one-stage run is. */
  def told(status: RankStatus): Unit = live.told(status)

  /**
   * The steps of a one-stage run, by rank. A step is over when its slowest rank is; the phases are the ranks' mean.
   *
   * @param rankNanos
   *   each rank's length of every step
   * @param places
   *   each rank's host and executor
   */
  def steps(rankNanos: Seq[Array[Long]], rankPhases: Seq[Array[Long]], places: Seq[(String, String)]): Unit = {
    ranks = rankPhases.zip(places).zipWithIndex.map { case ((nanos, (host, executor)), rank) =>
      val steps = math.max(1, rankNanos(rank).length)
      ListMap[String, Any](
        "rank" -> rank,
        "host" -> host,
        "executor" -> executor,
        "phases_ms" -> ListMap(Phase.names.zip(nanos.map(_ / 1e6 / steps)): _*)
      )
    }
    rankNanos.head.indices.foreach(step => stepNanos += rankNanos.map(_(step)).max)
    phases.indices.foreach(phase => phases(phase) += rankPhases.map(_(phase)).sum / rankPhases.size)
  }

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
   */
  def grouped(used: RankGroups, placed: RankGroups, before: Option[RankGroups]): Unit = {
    groups = Some(used)
    folder.event(
      "rank_groups",
      used.members,
      "processes" -> placed.members,
      "before" -> before.map(_.members),
      "bits_may_differ" -> before.exists(_ != used)
    )
  }

  /** Spark gave the training up, and it is submitted anew. */
  def resubmitted(reason: String, workers: Int): Unit =
    folder.event("resubmitted", None, "reason" -> reason, "workers" -> workers)

  def evaluated(epoch: Int, result: Evaluation): Unit = {
    evaluation = Some(result)
    folder.event(
      "eval_accuracy",
      result.accuracy,
      "epoch_num" -> (epoch + 1),
      "loss" -> result.loss,
      "rows" -> result.rows
    )
    progress.evaluated(result.accuracy)
  }

  /** @param measured length of the epoch in seconds, where the ranks measured it themselves */
  def epochStopped(epoch: Int, trainLoss: Double, measured: Option[Double] = None): Unit = {
    folder.event("epoch_stop", None, "epoch_num" -> (epoch + 1), "train_loss" -> trainLoss)
    epochs += EpochRecord(epoch + 1, measured.getOrElse(seconds - epochStart), trainLoss, evaluation)
    logging { to =>
      to.scalar("loss/train", epoch + 1L, trainLoss)
      evaluation.foreach { found =>
        to.scalar("loss/test", epoch + 1L, found.loss)
        to.scalar("accuracy/test", epoch + 1L, found.accuracy)
      }
      to.scalar("seconds", epoch + 1L, seconds)
    }
    progress.epochStopped(epoch + 1)
    evaluation = None
  }

  /** The run is over: for the loggers. */
  def ended(status: String): Unit = logging(_.ended(status))

  /** A logger that fails ends no run; the events say what it lost. */
  private def logging(use: RunLogger => Unit): Unit = loggers.foreach { logger =>
    try use(logger)
    catch {
      case error: java.io.IOException => folder.event("logging_failed", logger.name, "reason" -> error.getMessage)
    }
  }

  /** `final` of the summary. */
  def finals: ListMap[String, Any] = {
    val last = epochs.reverseIterator.flatMap(_.test).take(1).toSeq.headOption
    ListMap(
      "test_accuracy" -> last.map(_.accuracy),
      "test_loss" -> last.map(_.loss),
      "train_loss" -> epochs.lastOption.map(_.trainLoss),
      "seconds_total" -> seconds,
      "seconds_per_epoch_median" -> Recorder.median(epochs.map(_.seconds)),
      "ms_per_step_median" -> Recorder.median(stepNanos.map(_ / 1e6)),
      "steps" -> stepNanos.size
    )
  }

  /** Mean milliseconds a step, by phase. */
  def phasesMillis: ListMap[String, Double] = ListMap(Phase.names.indices.map { phase =>
    Phase.names(phase) -> phases(phase) / 1e6 / math.max(1, stepNanos.size)
  }: _*)

  /** Every step's milliseconds, in order. */
  def stepMillis: Seq[Double] = stepNanos.map(_ / 1e6).toSeq

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
      "workers" -> setup.workers,
      "servers" -> (setup.ranks - setup.workers),
      "batch" -> setup.batch,
      "history" -> history.map(_.toMap)
    )
}

object Recorder {
  def median(values: scala.collection.Seq[Double]): Option[Double] =
    if (values.isEmpty) None
    else {
      val sorted = values.sorted
      Some((sorted((sorted.size - 1) / 2) + sorted(sorted.size / 2)) / 2)
    }

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
