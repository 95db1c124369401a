package org.apache.spark.sparkdlbench

/** What differs between the Spark lines that this package is built for. */
private[sparkdlbench] object SparkLine {

  /** From Spark 4.0 plugins start before the shuffle manager is made. */
  val pluginSetsShuffleManager: Boolean = true
}
