package org.apache.spark.sparkdlbench

import org.apache.spark.network.util.IOMode
import sparkdlbench.transport.push.RankLoop

/** What differs between the Spark lines that this package is built for. */
private[sparkdlbench] object SparkLine {

  /** Spark 3.5 makes the shuffle manager before plugins start and before jars are added. */
  val pluginSetsShuffleManager: Boolean = false

  /** What Spark's pages are asked with. */
  type Request = javax.servlet.http.HttpServletRequest

  /** Spark 3.5 has Netty 4.1, whose loops have threads of their own. */
  def rankLoop(mode: IOMode): Option[RankLoop] = None
}
