package sparkdlbench.metrics

import org.apache.spark.sparkdlbench.KnownExecutor

import scala.collection.immutable.ListMap

/**
 * How a run's session came to be, as far as the driver knows.
 *
 * @param context
 *   when the Spark context began to start, milliseconds since 1970
 * @param executors
 *   when executors for all ranks had registered, likewise; None where the driver runs the tasks, or does not know
 * @param isFirst
 *   whether the run is its application's first
 */
final case class SessionStart(context: Long, executors: Option[Long], isFirst: Boolean) {

  def toMap: ListMap[String, Any] = ListMap[String, Any](
    "context_started_ms" -> context,
    "executors_registered_ms" -> executors,
    "cluster_manager_s" -> executors.map(moment => (moment - context) / 1e3),
    "first_run" -> isFirst
  )
}

object SessionStart {

  /**
   * When the last executor registered that a run has waited for.
   *
   * @param ranks
   *   task slots that it needs
   * @param clock
   *   when its clock started, milliseconds since 1970: those that were gone by then count for nothing
   */
  def registered(executors: Seq[KnownExecutor], ranks: Int, clock: Long): Option[Long] = {
    val there = executors.filter(_.gone.forall(_ > clock)).sortBy(_.registered)
    val slots = there.map(_.slots).scanLeft(0)(_ + _).drop(1)
    val last = there.zip(slots).collectFirst { case (executor, sum) if sum >= ranks => executor }
    // The scheduler counts an executor's slots a moment before the listeners are told of it.
    last.orElse(there.lastOption).map(executor => math.min(executor.registered, clock))
  }
}
