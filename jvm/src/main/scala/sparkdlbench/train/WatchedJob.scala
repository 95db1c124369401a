package sparkdlbench.train

import org.apache.spark.SparkContext
import sparkdlbench.AnyOutcome

import scala.collection.mutable
import scala.util.Try

/**
 * A Spark job that begins with a barrier stage, run in a thread of its own so that the caller can listen and watch meanwhile. The job is
 * ended where its tasks do not get the slots that they need (Spark skips the offers of a barrier stage silently while there are too
 * few, for ever), or do not meet.
 */
private[train] final class WatchedJob(sc: SparkContext, setup: RunSetup) {
  private val slots = new SlotWatch(sc, setup)
  private val start = new StartWatch(setup)

  /** True after the wait for slots was ended. */
  def lackedSlots: Boolean = slots.complaint.nonEmpty

  /** Why the job was ended here; None where it ended by itself. */
  def complaint: Option[String] = slots.complaint.orElse(start.complaint)

  /** A rank has told something. */
  def receive(report: RankReport): Unit = start.receive(report)

  /**
   * Returns what came of `job`, which is of the Spark job group that the run's name is.
   *
   * @param listen
   *   called over and over; returns after at most `PollMillis`. What it throws ends the job and is thrown here
   */
  def run[T](job: => T, listen: () => Unit, cancelled: () => Boolean): Try[T] = {
    @volatile var outcome: Option[Try[T]] = None
    val thread = new Thread(() => outcome = Some(AnyOutcome.of(job)), s"sparkdl-stage-${setup.runId}")
    thread.setDaemon(true)
    thread.start()
    try
      while (outcome.isEmpty) {
        listen()
        slots.look()
        start.look()
        if (cancelled() || complaint.nonEmpty) sc.cancelJobGroup(setup.runId)
      }
    catch { case cause: Throwable => end(thread, cause); throw cause }
    outcome.get
  }

  /**
   * Nobody listens to the job any more (a results folder without room is enough for that): it must not go on and hold its slots. Asked more
   * than once, because what is not submitted yet cannot be cancelled.
   */
  private def end(job: Thread, cause: Throwable): Unit = {
    val deadline = System.nanoTime() + WatchedJob.EndMillis * 1000000L
    try
      while (job.isAlive && System.nanoTime() < deadline) {
        sc.cancelJobGroup(setup.runId)
        job.join(WatchedJob.PollMillis)
      }
    catch { case other: Throwable => cause.addSuppressed(other) }
  }
}

private[train] object WatchedJob {
  val PollMillis = 200L
  private val EndMillis = 20000L
}

/** Watches whether the stage's tasks run. */
private final class SlotWatch(sc: SparkContext, setup: RunSetup) {
  private val limit = setup.settings(Checkpointing.replacementSeconds)
  private var idleSince = System.nanoTime()
  private var lookedAt = 0L
  var complaint: Option[String] = None

  def look(): Unit = {
    val now = System.nanoTime()
    if (now - lookedAt > SlotWatch.LookNanos) {
      lookedAt = now
      if (allRun) idleSince = now
      if (complaint.isEmpty && now - idleSince > limit * 1000000000L)
        complaint = Some(
          s"The training's ${setup.ranks} tasks run at the same time or not at all, and for $limit s (recovery.replacement_wait) there were not as many " +
            "slots: other jobs of this session hold them, or an executor was lost and none came in its place. End the other jobs, give the session " +
            "more executors, or raise recovery.replacement_wait."
        )
    }
  }

  private def allRun: Boolean = {
    val stages =
      sc.statusTracker.getJobIdsForGroup(setup.runId).flatMap(sc.statusTracker.getJobInfo(_)).flatMap(_.stageIds)
    stages.flatMap(sc.statusTracker.getStageInfo(_)).exists { stage =>
      stage.numTasks == setup.ranks && stage.numActiveTasks + stage.numCompletedTasks >= setup.ranks
    }
  }
}

private object SlotWatch { val LookNanos = 500000000L }

/** Watches whether the ranks of an attempt meet; from then on they watch each other. */
private[train] final class StartWatch(setup: RunSetup, nanoTime: () => Long = () => System.nanoTime()) {
  private val limit = setup.settings(Checkpointing.startSeconds)
  private val begun = mutable.Map.empty[Int, StartReport]
  private var attempt = -1
  private var since = 0L
  private var met = false
  var complaint: Option[String] = None

  def receive(report: RankReport): Unit = if (report.attempt >= attempt) {
    if (report.attempt > attempt) {
      attempt = report.attempt
      since = nanoTime()
      begun.clear()
      met = false
    }
    report match {
      case start: StartReport => begun(start.rank) = start
      case _ => met = true
    }
  }

  def look(): Unit =
    if (complaint.isEmpty && !met && begun.nonEmpty && nanoTime() - since > limit * 1000000000L)
      complaint = Some(
        s"The ranks of the training had not met $limit s after the first of them began (start_timeout): ${state.mkString("; ")}. Look into the logs of " +
          "those executors and at what they read, or raise start_timeout where opening the data takes longer."
      )

  private def state: Seq[String] = (0 until setup.ranks).map { rank =>
    begun.get(rank).fold(s"rank $rank has not said anything")(one => s"${one.place} ${one.doing}")
  }
}
