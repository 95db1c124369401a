package sparkdlbench.job

import org.apache.spark.{SparkContext, TaskContext}
import org.apache.spark.util.CollectionAccumulator

import scala.jdk.CollectionConverters._

/**
 * What one task of a stage did. It comes with the task's end, because a stage that writes a shuffle returns nothing else.
 *
 * @param loss
 *   sum of the losses of the rank's rows, where the stage computed them
 * @param phases
 *   exposed nanoseconds by phase
 * @param bytes
 *   payload bytes sent by channel, where the task has no rank that counts them
 */
private[sparkdlbench] final case class StageReport(
    stage: Int,
    task: Int,
    loss: Double,
    phases: Array[Long],
    bytes: Map[String, Long] = Map.empty
)

/** The reports of one job. Driver side. */
private[sparkdlbench] final class StageReports(val sink: CollectionAccumulator[StageReport]) {
  def reset(): Unit = sink.reset()

  /** One a task: the last, where a task was repeated. */
  def all: Seq[StageReport] =
    sink.value.asScala.toSeq.groupBy(report => (report.stage, report.task)).toSeq.sortBy(_._1).map(_._2.last)

  /** The losses by rank. */
  def losses: Seq[Double] = all.filter(_.stage == 0).map(_.loss)

  /** By stage and task. */
  def phases: Seq[Seq[Array[Long]]] = all.groupBy(_.stage).toSeq.sortBy(_._1).map(_._2.map(_.phases))
}

private[sparkdlbench] object StageReports {
  def apply(sc: SparkContext): StageReports = new StageReports(sc.collectionAccumulator[StageReport])

  /** Reports when the running task has ended, its shuffle written. */
  def atTaskEnd(sink: CollectionAccumulator[StageReport], report: => StageReport): Unit = {
    TaskContext.get().addTaskCompletionListener[Unit](_ => sink.add(report))
    ()
  }
}
