package sparkdlbench.data

import org.apache.spark.{SparkConf, SparkEnv}

/** The heap of an executor, bytes. The driver, which plans, and the executors, which open the rows, find the same. */
private[data] object ExecutorHeap {
  def bytes: Long = Option(SparkEnv.get).fold(own)(env => of(env.conf))

  /** As the session's configuration has it; with a local master the driver's own, for there is no other. */
  def of(conf: SparkConf): Long = {
    val master = conf.get("spark.master", "")
    if (master == "local" || master.startsWith("local[")) own
    else conf.getSizeAsMb("spark.executor.memory", "1g") << 20
  }

  private def own: Long = Runtime.getRuntime.maxMemory
}
