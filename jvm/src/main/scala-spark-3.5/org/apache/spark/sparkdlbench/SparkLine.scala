package org.apache.spark.sparkdlbench

/** What differs between the Spark lines that this package is built for. */
private[sparkdlbench] object SparkLine {

  /** Spark 3.5 makes the shuffle manager before plugins start and before jars are added. */
  val pluginSetsShuffleManager: Boolean = false
}
