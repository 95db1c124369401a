package sparkdlbench.metrics

import org.apache.spark.scheduler.{
  SparkListener,
  SparkListenerJobEnd,
  SparkListenerJobStart,
  SparkListenerStageCompleted,
  SparkListenerTaskEnd
}
import org.apache.spark.sparkdlbench.SparkFacts

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

  /** The parts of the first jobs, as moments: where the first step was among them is known at the end alone. */
  private val early = mutable.ArrayBuffer.empty[Part]

  override def onJobStart(event: SparkListenerJobStart): Unit = synchronized {
    if (Option(event.properties).exists(_.getProperty(SparkFacts.JobGroup) == group)) {
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
        info.launchTime,
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
      var at = submitted
      Seq(
        Launch -> (task.launched - submitted),
        Serialisation -> task.deserialise,
        Run -> task.run,
        Serialisation -> task.results,
        Launch -> (completed - submitted)
      ).foreach { case (name, length) =>
        val end = math.min(completed, at + math.max(0L, length))
        millis(name) += end - at
        keep(Part(name, at, end))
        at = end
      }
      keep(Part(Submission, job.reached, submitted))
      job.reached = completed
      job.inStages += completed - submitted
    }
  }

  private def keep(part: Part): Unit = if (early.size < MostEarly) { early += part; () }

  override def onJobEnd(event: SparkListenerJobEnd): Unit = synchronized {
    jobs.remove(event.jobId).foreach { job =>
      val length = math.max(0L, event.time - job.started)
      inJobs += length
      millis(Submission) += math.max(0L, length - job.inStages)
    }
  }

  /**
   * Seconds by layer; they add up to `wallMillis`. What of Spark's own was over before the first step stands beside them.
   *
   * @param wallMillis
   *   length of the run
   * @param firstStep
   *   when the steps began, milliseconds since 1970
   */
  def seconds(wallMillis: Long, firstStep: Option[Long]): ListMap[String, Any] = synchronized {
    val layers = names.map(name => name -> millis(name) / 1e3) :+ (Outside -> math.max(0L, wallMillis - inJobs) / 1e3)
    val before = firstStep.map { moment =>
      ListMap(Seq(Serialisation, Launch, Submission).map { name =>
        name -> early.filter(_.layer == name).map(_.millisBefore(moment)).sum / 1e3
      }: _*)
    }
    ListMap[String, Any](
      "jobs" -> jobCount,
      "tasks" -> taskCount,
      "layers_s" -> ListMap(layers: _*),
      "before_steps_s" -> before
    )
  }
}

object SparkLayers {

  /** The task of a stage that ended last: moments, then milliseconds. */
  private final case class LastTask(launched: Long, finished: Long, deserialise: Long, run: Long, results: Long)

  private final class Job(val started: Long, val stages: Set[Int]) {
    var inStages: Long = 0

    /** When its last stage so far was over, or it began. */
    var reached: Long = started
  }

  /** From a moment to another. */
  private final case class Part(layer: String, from: Long, until: Long) {
    def millisBefore(moment: Long): Long = math.max(0L, math.min(until, moment) - from)
  }

  /** Parts kept: those of some hundred jobs, which are more than any run makes before its first step. */
  private val MostEarly = 1000

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
