package org.apache.spark.sparkdlbench

import org.apache.spark.{ExecutorAllocationClient, MapOutputTrackerMaster, SparkContext, SparkEnv}
import org.apache.spark.scheduler.ExecutorDecommissionInfo
import org.apache.spark.shuffle.sort.SortShuffleManager
import org.apache.spark.util.Utils

import scala.jdk.CollectionConverters._

/** What tests need of Spark's inside. */
object SparkTestSupport {

  /** Makes the masters, workers and executors started from this JVM bind to loopback, as SPARK_LOCAL_IP would. */
  def useLoopback(): Unit = Utils.setCustomHostname("127.0.0.1")

  /** Class of this executor's shuffle manager, and whether it is a sort shuffle manager. */
  def shuffleManager: (String, Boolean) = {
    val manager = SparkEnv.get.shuffleManager
    (manager.getClass.getName, manager.isInstanceOf[SortShuffleManager])
  }

  /** Writers and readers that `CountingShuffleManager` has handed out in this executor. */
  def countedShuffles: (Long, Long) = (CountingShuffleManager.writers.get, CountingShuffleManager.readers.get)

  /** Shuffles that the driver keeps map-output entries of. */
  def trackedShuffles: Int =
    SparkEnv.get.mapOutputTracker.asInstanceOf[MapOutputTrackerMaster].shuffleStatuses.size

  /** Waits until the listeners have heard of all that has happened. */
  def awaitEvents(sc: SparkContext): Unit = sc.listenerBus.waitUntilEmpty()

  /** What `OwnWayShuffleManager` has counted in this executor: bytes served to others, found here, held now. */
  def ownWay: (Long, Long, Long) =
    (OwnWayShuffleManager.served.get, OwnWayShuffleManager.found.get, OwnWayShuffleManager.held.get)

  /** Names of the gauges that a plugin has registered in this process. */
  def pluginMetrics(plugin: String): Set[String] =
    SparkEnv.get.metricsSystem.getSourcesByName(s"plugin.$plugin").flatMap(_.metricRegistry.getNames.asScala).toSet

  /** Changes a property of a session that runs already: no more than what asks for it from now on sees it. */
  def set(sc: SparkContext, key: String, value: String): Unit = sc.conf.set(key, value): Unit

  /** Kills one executor; the master starts another in its place. */
  def killExecutor(sc: SparkContext): Unit = assert(sc.killAndReplaceExecutor(sc.getExecutorIds().head))

  /** Asks one executor to leave once its tasks have ended, as a cluster manager does; none comes in its place before `wantExecutors`. */
  def decommissionExecutor(sc: SparkContext): Unit = {
    val client = sc.schedulerBackend.asInstanceOf[ExecutorAllocationClient]
    val why = ExecutorDecommissionInfo("the test asks for it")
    assert(client.decommissionExecutor(sc.getExecutorIds().head, why, adjustTargetNumExecutors = true))
  }

  /** Has the master start executors until there are so many. */
  def wantExecutors(sc: SparkContext, number: Int): Unit = assert(sc.requestTotalExecutors(number, 0, Map.empty))

  /** Kills all executors; none comes in their place. */
  def killExecutors(sc: SparkContext): Unit = assert(sc.killExecutors(sc.getExecutorIds()))
}
