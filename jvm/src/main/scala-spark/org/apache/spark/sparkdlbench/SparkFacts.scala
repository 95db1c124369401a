package org.apache.spark.sparkdlbench

import org.apache.spark.{SparkConf, SparkContext}
import org.apache.spark.util.Utils

import java.io.File

/** What only Spark itself knows about a session. */
object SparkFacts {

  /** Tasks that can run at the same time now, counted by Spark's own scheduler. */
  def slots(sc: SparkContext): Int = sc.maxNumConcurrentTasks(sc.resourceProfileManager.defaultResourceProfile)

  /** The configuration with secrets replaced, as Spark's own UI shows it (`spark.redaction.regex`). */
  def redacted(conf: SparkConf): Seq[(String, String)] = Utils.redact(conf, conf.getAll.toSeq).toList.sortBy(_._1)

  /** The preferred location that names one executor. */
  def executorLocation(host: String, executorId: String): String = s"executor_${host}_$executorId"

  /** The folder of Spark's own jars. */
  def distribution: File = new File(
    classOf[SparkContext].getProtectionDomain.getCodeSource.getLocation.toURI
  ).getParentFile
}
