package sparkdlbench.data

import org.apache.spark.sparkdlbench.SparkFacts
import org.apache.spark.{SparkConf, SparkEnv}

/** The heap of an executor, bytes. The driver, which plans, and the executors, which open the rows, find the same. */
private[sparkdlbench] object ExecutorHeap {
  def bytes: Long = Option(SparkEnv.get).fold(own)(env => of(env.conf))

  /** As the session's configuration has it; with a local master the driver's own, for there is no other. */
  def of(conf: SparkConf): Long =
    if (SparkFacts.isLocalMaster(conf.get("spark.master", ""))) own
    else conf.getSizeAsMb("spark.executor.memory", "1g") << 20

  private def own: Long = Runtime.getRuntime.maxMemory
}
