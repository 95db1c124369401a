package sparkdlbench.train

import org.apache.spark.SparkContext
import org.apache.spark.scheduler.{
  SparkListener,
  SparkListenerJobStart,
  SparkListenerStageCompleted,
  SparkListenerTaskStart
}
import org.apache.spark.sparkdlbench.SparkFacts
import sparkdlbench.common.{DivergedException, Outcome}
import sparkdlbench.config.CheckpointKeys

import java.util.concurrent.ConcurrentHashMap
import scala.collection.mutable
import scala.util.Try

/**
 * A Spark job that begins with a barrier stage, run in a thread of its own so that the caller can listen and watch meanwhile. The job is
 * ended where its tasks do not get the slots that they need (Spark skips the offers of a barrier stage silently while there are too
 * few, for ever), or do not meet.
 */
private[train] final class WatchedJob(sc: SparkContext, setup: RunSetup, waits: String => Unit = _ => ()) {
  private val slots = new SlotWatch(sc, setup, waits)
  private val start = new StartWatch(setup)

  /** True after the wait for slots was ended. */
  def lackedSlots: Boolean = slots.complaint.nonEmpty

  /** Why the job was ended here; None where it ended by itself. */
  def complaint: Option[String] = slots.complaint.orElse(start.complaint).orElse(diverged.map(_.text))

  /** What the rank has told whose loss was the first not to be finite. */
  private var diverged: Option[DivergedReport] = None
  def divergence: Option[DivergedException] = diverged.map(each => new DivergedException(each.text))

  /** A rank has told something. */
  def receive(report: RankReport): Unit = {
    start.receive(report)
    report match {
      case told: DivergedReport if diverged.forall(_.step > told.step) => diverged = Some(told)
      case _ => ()
    }
  }

  /**
   * Returns what came of `job`, which is of the Spark job group that the run's name is.
   *
   * @param listen
   *   called over and over; returns after at most `PollMillis`. What it throws ends the job and is thrown here
   */
  def run[T](job: => T, listen: () => Unit, cancelled: () => Boolean): Try[T] = {
    @volatile var outcome: Option[Try[T]] = None
    val thread = new Thread(() => outcome = Some(Outcome.of(job)), s"sparkdl-stage-${setup.runId}")
    thread.setDaemon(true)
    slots.open()
    thread.start()
    try
      while (outcome.isEmpty) {
        listen()
        slots.look()
        start.look()
        if (cancelled() || complaint.nonEmpty) sc.cancelJobGroup(setup.runId)
      }
    catch { case cause: Throwable => end(thread, cause); throw cause }
    finally slots.close()
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

/**
 * Watches whether the stage's tasks run.
 *
 * @param waits
 *   told what is waited for while they do not
 */
private final class SlotWatch(sc: SparkContext, setup: RunSetup, waits: String => Unit) extends AutoCloseable {
  private val limit = setup.settings(CheckpointKeys.replacementSeconds)
  private val settleNanos = setup.settings(CheckpointKeys.settleSeconds) * 1000000000L
  private val stages = new BegunStages(setup.runId)
  private var idleSince = System.nanoTime()
  var complaint: Option[String] = None

  def open(): Unit = {
    sc.addSparkListener(stages)
    idleSince = System.nanoTime()
  }

  def look(): Unit = {
    val now = System.nanoTime()
    if (stages.anyRuns) idleSince = now
    else if (now - idleSince > SlotWatch.QuietMillis * 1000000L) {
      waits(s"waiting for ${setup.ranks} slots, ${SparkFacts.slots(sc)} registered")
      if (complaint.isEmpty && now - idleSince > settleNanos) complaint = fewer
    }
    if (complaint.isEmpty && now - idleSince > limit * 1000000000L)
      complaint = Some(
        s"The training's ${setup.ranks} tasks run at the same time or not at all, and for $limit s (recovery.replacement_wait) there were not as many " +
          "slots: other jobs of this session hold them, or an executor was lost and none came in its place. End the other jobs, give the session " +
          "more executors, or raise recovery.replacement_wait."
      )
  }

  /** Of a run with a range of workers, where there are slots for fewer: it waits for no replacement, as it takes in later what comes then. */
  private def fewer: Option[String] = {
    val slots = SparkFacts.slots(sc)
    setup.range.filter(WorkerNumbers.fitting(setup.settings, _, slots).exists(_ < setup.workers)).map { range =>
      s"The session has $slots slots now, and the training had ${setup.ranks} tasks; workers = $range lets it go on with fewer."
    }
  }

  override def close(): Unit = sc.removeSparkListener(stages)
}

private object SlotWatch { val QuietMillis = 1000L }

/**
 * The stages of a Spark job group that have got slots, and have not failed. Where one task of a barrier stage begins all do. By Spark's events,
 * because its status tracker may learn of a task's begin with the executors' next heartbeat, ten seconds later.
 */
private final class BegunStages(group: String) extends SparkListener {
  private val ofGroup = ConcurrentHashMap.newKeySet[Int]()
  private val begun = ConcurrentHashMap.newKeySet[(Int, Int)]()

  def anyRuns: Boolean = !begun.isEmpty

  override def onJobStart(job: SparkListenerJobStart): Unit =
    if (Option(job.properties).exists(_.getProperty(SparkFacts.JobGroup) == group))
      job.stageIds.foreach(ofGroup.add(_): Unit)

  override def onTaskStart(task: SparkListenerTaskStart): Unit =
    if (ofGroup.contains(task.stageId)) begun.add((task.stageId, task.stageAttemptId)): Unit

  override def onStageCompleted(stage: SparkListenerStageCompleted): Unit = {
    val info = stage.stageInfo
    if (info.failureReason.nonEmpty) begun.remove((info.stageId, info.attemptNumber())): Unit
  }
}

/** Watches whether the ranks of an attempt meet; from then on they watch each other. */
private[train] final class StartWatch(setup: RunSetup, nanoTime: () => Long = () => System.nanoTime()) {
  private val limit = setup.settings(CheckpointKeys.startSeconds)
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
