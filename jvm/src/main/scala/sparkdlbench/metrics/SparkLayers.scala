package sparkdlbench.metrics

import org.apache.spark.scheduler.{
  SparkListener,
  SparkListenerJobEnd,
  SparkListenerJobStart,
  SparkListenerStageCompleted,
  SparkListenerTaskEnd
}

import scala.collection.immutable.ListMap
import scala.collection.mutable

/**
 * Cuts the wall clock of a run, as the driver sees it, into the layers of Spark above the work itself. Of each stage the task
 * that ended last counts, since the others ran beside it. Spark's clock ticks in milliseconds; differences of its ticks are
 * right on average.
 *
 * @param group
 *   the job group of the run
 */
final class SparkLayers(group: String) extends SparkListener {
  import SparkLayers._

  private val jobs = mutable.Map.empty[Int, Job]
  private val lastTasks = mutable.Map.empty[Int, LastTask]
  private val millis = mutable.Map.empty[String, Long].withDefaultValue(0L)
  private var inJobs = 0L
  private var jobCount = 0L
  private var taskCount = 0L

  override def onJobStart(event: SparkListenerJobStart): Unit = synchronized {
    if (Option(event.properties).exists(_.getProperty(GroupProperty) == group)) {
      jobCount += 1
      jobs(event.jobId) = new Job(event.time, event.stageIds.toSet)
    }
  }

  override def onTaskEnd(event: SparkListenerTaskEnd): Unit = synchronized {
    if (event.taskMetrics != null && jobs.values.exists(_.stages.contains(event.stageId))) {
      taskCount += 1
      val (info, metrics) = (event.taskInfo, event.taskMetrics)
      val fetching = if (info.gettingResultTime > 0) math.max(0L, info.finishTime - info.gettingResultTime) else 0L
      val task = LastTask(
        info.finishTime,
        metrics.executorDeserializeTime,
        metrics.executorRunTime,
        metrics.resultSerializationTime + fetching
      )
      if (lastTasks.get(event.stageId).forall(_.finished <= task.finished)) lastTasks(event.stageId) = task
    }
  }

  override def onStageCompleted(event: SparkListenerStageCompleted): Unit = synchronized {
    val stage = event.stageInfo
    for {
      job <- jobs.values.find(_.stages.contains(stage.stageId))
      task <- lastTasks.remove(stage.stageId)
      submitted <- stage.submissionTime
      completed <- stage.completionTime
    } {
      // Parts are cut to what is left of the whole, so that the sum holds whatever the rounding.
      var left = completed - submitted
      Seq(Run -> task.run, Serialisation -> (task.deserialise + task.results)).foreach { case (name, part) =>
        val taken = math.min(left, math.max(0L, part))
        millis(name) += taken
        left -= taken
      }
      millis(Launch) += left
      job.inStages += completed - submitted
    }
  }

  override def onJobEnd(event: SparkListenerJobEnd): Unit = synchronized {
    jobs.remove(event.jobId).foreach { job =>
      val length = math.max(0L, event.time - job.started)
      inJobs += length
      millis(Submission) += math.max(0L, length - job.inStages)
    }
  }

  /**
   * Seconds by layer; they add up to `wallMillis`.
   *
   * @param wallMillis
   *   length of the run
   */
  def seconds(wallMillis: Long): ListMap[String, Any] = synchronized {
    val layers = names.map(name => name -> millis(name) / 1e3) :+ (Outside -> math.max(0L, wallMillis - inJobs) / 1e3)
    ListMap[String, Any]("jobs" -> jobCount, "tasks" -> taskCount, "layers_s" -> ListMap(layers: _*))
  }
}

object SparkLayers {

  /** Milliseconds of the task of a stage that ended last. */
  private final case class LastTask(finished: Long, deserialise: Long, run: Long, results: Long)

  private final class Job(val started: Long, val stages: Set[Int]) {
    var inStages: Long = 0
  }

  /** The property of a job that `SparkContext.setJobGroup` sets. */
  private val GroupProperty = "spark.jobGroup.id"

  /** Inside the tasks: all that a run does itself. */
  val Run = "run"

  /** Tasks are turned into objects at the executors, and their results into bytes and back. */
  val Serialisation = "serialisation"

  /** Tasks wait for their slots, travel to the executors, and their ends are told to the driver. */
  val Launch = "launch"

  /** Jobs and stages are planned, submitted and ended in the driver. */
  val Submission = "submission"

  /** The driver's own part between jobs, and before and after them. */
  val Outside = "outside"
  private val names = Seq(Run, Serialisation, Launch, Submission)
}
