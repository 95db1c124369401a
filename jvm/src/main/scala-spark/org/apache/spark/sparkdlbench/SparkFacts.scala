package org.apache.spark.sparkdlbench

import org.apache.hadoop.conf.Configuration
import org.apache.spark.{SparkConf, SparkContext, SparkEnv}
import org.apache.spark.deploy.SparkHadoopUtil
import org.apache.spark.internal.config.SECRET_REDACTION_PATTERN
import org.apache.spark.scheduler.cluster.CoarseGrainedSchedulerBackend
import org.apache.spark.util.Utils

import sparkdlbench.config.Redaction

import java.io.File

/**
 * An executor that has registered with the driver.
 *
 * @param slots
 *   tasks that it can run at the same time
 * @param registered
 *   when, milliseconds since 1970
 * @param gone
 *   when it was lost or given back; None while it is there
 */
final case class KnownExecutor(id: String, address: String, slots: Int, registered: Long, gone: Option[Long])

/** What only Spark itself knows about a session. */
object SparkFacts {

  /** The one context of this JVM; None where there is none or it is stopped. */
  def active: Option[SparkContext] = SparkContext.getActive.filterNot(_.isStopped)

  /** Whether this process, and so every executor with the same configuration, takes the streams of block-stream in. */
  def takesStreams: Boolean = Option(SparkEnv.get).nonEmpty && SparkBlockStreamNetwork.obstacle.isEmpty

  /** Property of a job that names its group. */
  val JobGroup: String = SparkContext.SPARK_JOB_GROUP_ID

  /** Tasks that can run at the same time now, counted by Spark's own scheduler. */
  def slots(sc: SparkContext): Int = sc.maxNumConcurrentTasks(sc.resourceProfileManager.defaultResourceProfile)

  /** Whether the driver runs the tasks. */
  def isLocalMaster(master: String): Boolean = master == "local" || master.startsWith("local[")

  /** Executors now; the driver itself where it runs the tasks. */
  def executors(sc: SparkContext): Int =
    if (sc.isLocal) 1 else sc.statusTracker.getExecutorInfos.length - 1 // it counts the driver as well

  /** Names of the executors now, by Spark's own scheduler. */
  def living(sc: SparkContext): Set[String] =
    if (sc.isLocal) Set(SparkContext.DRIVER_IDENTIFIER) else sc.getExecutorIds().toSet

  /** Names of the executors that get new tasks: those that are being decommissioned are living, and get none. */
  def taking(sc: SparkContext): Set[String] = sc.schedulerBackend match {
    case backend: CoarseGrainedSchedulerBackend => backend.getExecutorIds().filter(backend.isExecutorActive).toSet
    case _ => living(sc)
  }

  /**
   * Every executor that the listeners have heard of, without the driver; of those that are gone as many as Spark's pages keep.
   * None at all where the session keeps its pages' facts to its end (`spark.ui.liveUpdate.period=-1`).
   */
  def known(sc: SparkContext): Seq[KnownExecutor] =
    sc.statusStore.executorList(activeOnly = false).filterNot(_.id == SparkContext.DRIVER_IDENTIFIER).map { each =>
      KnownExecutor(each.id, each.hostPort, each.maxTasks, each.addTime.getTime, each.removeTime.map(_.getTime))
    }

  /** Hadoop's configuration with the session's `spark.hadoop.*`, as executors know it. */
  def hadoop(conf: SparkConf): Configuration = SparkHadoopUtil.get.newConfiguration(conf)

  /** Whether executors encrypt what they say to each other. */
  def encrypts(conf: SparkConf): Boolean =
    Seq("spark.network.crypto.enabled", "spark.authenticate.enableSaslEncryption", "spark.ssl.rpc.enabled")
      .exists(key => conf.getBoolean(key, defaultValue = false))

  /** The configuration with secrets replaced: what Spark's own UI hides (`spark.redaction.regex`), and what `Redaction` hides besides. */
  def redacted(conf: SparkConf): Seq[(String, String)] = {
    val secret =
      conf.get(SECRET_REDACTION_PATTERN) // by the pattern: `redact` of a whole SparkConf differs between 4.0 and 4.1
    Utils.redact(Some(secret), conf.getAll.toSeq).toList.sortBy(_._1).map { case (name, value) =>
      name -> Redaction.value(name, value)
    }
  }

  /** Waits until the listeners have heard of what has happened so far, or the time is over. */
  def awaitListeners(sc: SparkContext, millis: Long): Unit =
    try sc.listenerBus.waitUntilEmpty(millis)
    catch { case _: java.util.concurrent.TimeoutException => () }

  /** The preferred location that names one executor. */
  def executorLocation(host: String, executorId: String): String = s"executor_${host}_$executorId"

  /** The folder of Spark's own jars. */
  def distribution: File = new File(
    classOf[SparkContext].getProtectionDomain.getCodeSource.getLocation.toURI
  ).getParentFile
}
