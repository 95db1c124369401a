package sparkdlbench.train

import org.apache.spark.{TaskFailedReason, TaskKilled}
import org.apache.spark.scheduler.{
  SparkListener,
  SparkListenerExecutorMetricsUpdate,
  SparkListenerExecutorRemoved,
  SparkListenerJobStart,
  SparkListenerStageCompleted,
  SparkListenerStageSubmitted,
  SparkListenerTaskEnd,
  SparkListenerTaskStart
}
import org.apache.spark.sparkdlbench.SparkFacts
import sparkdlbench.common.Failures

import java.util.concurrent.{ConcurrentHashMap, ConcurrentLinkedQueue}
import scala.collection.mutable
import scala.jdk.CollectionConverters._

/**
 * Something that befell a run that goes on: for the terminal, the events and the summary.
 *
 * @param kind
 *   `executor_stopped`, `rank_failed`, `stage_retried`, `ranks_silent` or `batch_of_all_rows`
 */
final case class Notice(
    kind: String,
    reason: String,
    rank: Option[Int] = None,
    host: Option[String] = None,
    executor: Option[String] = None
) {

  /** For a terminal. */
  def line: String = {
    val who = rank.map(number => s"rank $number").toSeq ++ executor.map(id => s"executor $id") ++ host.map("on " + _)
    (kind.replace('_', ' ') +: who).mkString(" ") + s": $reason"
  }
}

/** Collects what Spark says of the stages of a job group and of the executors, from its listeners' thread. */
private[train] final class StageNotices(group: String, nanoTime: () => Long = () => System.nanoTime())
    extends SparkListener {
  import StageNotices._

  private val found = new ConcurrentLinkedQueue[Notice]()
  private val stages = ConcurrentHashMap.newKeySet[Int]()
  private val hosts = new ConcurrentHashMap[String, String]()
  private val ranks = new ConcurrentHashMap[String, Set[Int]]()
  private val beats = new ConcurrentHashMap[String, Long]()
  @volatile private var lastFailure = "its tasks failed"

  /** Those that came since the last call. */
  def take(): Seq[Notice] = Iterator.continually(found.poll()).takeWhile(_ != null).toList

  /** Executors with ranks of the run that have sent no heartbeat for so long, as words. */
  def withoutHeartbeat(seconds: Double): Seq[String] =
    beats.asScala.toSeq.sorted.filter { case (_, at) => nanoTime() - at > seconds * 1e9 }.map { case (executor, at) =>
      val of = Option(ranks.get(executor)).toSeq.flatten.sorted.map(rank => s"rank $rank").mkString(", ")
      f"executor $executor on ${hosts.get(executor)} ($of) has sent no heartbeat for ${(nanoTime() - at) / 1e9}%.0f s"
    }

  override def onJobStart(job: SparkListenerJobStart): Unit =
    if (Option(job.properties).exists(_.getProperty(SparkFacts.JobGroup) == group))
      job.stageIds.foreach(stages.add(_): Unit)

  override def onTaskStart(task: SparkListenerTaskStart): Unit = if (stages.contains(task.stageId)) {
    val info = task.taskInfo
    hosts.put(info.executorId, info.host)
    ranks.merge(info.executorId, Set(info.index), (one: Set[Int], other: Set[Int]) => one ++ other)
    beats.put(info.executorId, nanoTime())
    ()
  }

  override def onExecutorMetricsUpdate(update: SparkListenerExecutorMetricsUpdate): Unit = {
    beats.computeIfPresent(update.execId, (_: String, _: Long) => nanoTime())
    ()
  }

  override def onTaskEnd(task: SparkListenerTaskEnd): Unit = task.reason match {
    case _: TaskKilled => ()
    case failed: TaskFailedReason if stages.contains(task.stageId) =>
      val info = task.taskInfo
      lastFailure = short(failed.toErrorString)
      found.add(
        Notice("rank_failed", lastFailure, Some(info.index), Some(info.host), Some(info.executorId).filter(_.nonEmpty))
      )
      ()
    case _ => ()
  }

  override def onExecutorRemoved(removed: SparkListenerExecutorRemoved): Unit = {
    beats.remove(removed.executorId)
    ranks.remove(removed.executorId)
    val host = Option(hosts.get(removed.executorId))
    lastFailure = short(removed.reason)
    found.add(Notice("executor_stopped", lastFailure, host = host, executor = Some(removed.executorId)))
    ()
  }

  override def onStageCompleted(stage: SparkListenerStageCompleted): Unit =
    if (stages.contains(stage.stageInfo.stageId)) stage.stageInfo.failureReason.foreach { reason =>
      lastFailure = short(reason)
    }

  override def onStageSubmitted(stage: SparkListenerStageSubmitted): Unit = {
    val info = stage.stageInfo
    if (stages.contains(info.stageId) && info.attemptNumber() > 0) {
      found.add(Notice("stage_retried", s"attempt ${info.attemptNumber() + 1} begins, since $lastFailure"))
      ()
    }
  }
}

private object StageNotices {
  private val Longest = 300

  /** The sentence of ours in what Spark wraps around it, or its first line. */
  def short(reason: String): String = {
    val own =
      if (reason.contains("sparkdlbench.")) Failures.reason(new RuntimeException(reason)) else reason
    val line = own.linesIterator.map(_.trim).find(_.nonEmpty).getOrElse("Spark gives no reason")
    if (line.length > Longest) line.take(Longest) + "…" else line
  }
}

/** Sees when ranks that were training tell of no step any more; they are told by rank 0, once a second. */
private[train] final class SilenceWatch(
    suspects: () => Seq[String],
    timeoutSeconds: Int,
    nanoTime: () => Long = () => System.nanoTime()
) {
  private var heardAt: Option[Long] = None
  private var step = 0L

  /** Between two reports: a step of a large net takes what it takes. */
  private var longest = 0L
  private val told = mutable.Set.empty[Long]

  def receive(report: RankReport): Unit = report match {
    case one: StepReport =>
      val now = nanoTime()
      heardAt.foreach(before => longest = math.max(longest, now - before))
      heardAt = Some(now)
      step = one.step
    case _: EpochReport => heardAt = heardAt.map(_ => nanoTime())
    case _ => heardAt = None // an attempt begins, or the ranks evaluate
  }

  /** Something to tell, once a silence. */
  def look(): Option[Notice] = {
    val silent =
      heardAt.map(at => (nanoTime() - at) / 1e9).filter(_ > math.max(SilenceWatch.Seconds, 3 * longest / 1e9))
    if (silent.isEmpty || !told.add(heardAt.get)) None
    else {
      val who = suspects()
      val reason = f"no step has ended for ${silent.get}%.0f s, since step $step" +
        (if (who.isEmpty) "" else s"; ${who.mkString("; ")}") +
        s". A rank that waits for another gives up after $timeoutSeconds s (timeout)"
      Some(Notice("ranks_silent", reason))
    }
  }
}

private[train] object SilenceWatch {
  val Seconds = 15.0

  /** Executors send a heartbeat every 10 s. */
  val HeartbeatSeconds = 12.0
}
