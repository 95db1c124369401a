package sparkdlbench.train

import org.apache.spark.SparkContext
import org.apache.spark.sparkdlbench.SparkFacts
import sparkdlbench.ConfigurationException
import sparkdlbench.config.{RunKeys, Settings}
import sparkdlbench.results.Facts

/** What a session must offer before any Spark job of a run starts. Every complaint says what to do. */
object SessionCheck {
  private val PollMillis = 100L
  private val StableMillis = 6000L

  def check(sc: SparkContext, settings: Settings): Unit = {
    version(sc)
    ShuffleManagerCheck.check(sc.getConf.getAll.toMap, executorsRun = SparkFacts.slots(sc) > 0)
    dynamicAllocation(sc)
    batch(settings)
    slots(sc, settings)
  }

  private def version(sc: SparkContext): Unit = {
    val line = Facts.build.getOrElse("spark_line", "")
    val fits = if (line == "4") sc.version.startsWith("4.") else sc.version.startsWith(s"$line.")
    if (!fits)
      throw new ConfigurationException(
        s"This jar of sparkdl-bench was built for Spark $line.x, and the session runs Spark ${sc.version}. Use the jar whose name says " +
          s"spark-${sc.version.split('.').take(if (sc.version.startsWith("4.")) 1 else 2).mkString(".")} (Spark 3.5 and 4.x are supported)."
      )
  }

  private def dynamicAllocation(sc: SparkContext): Unit =
    if (sc.getConf.getBoolean("spark.dynamicAllocation.enabled", defaultValue = false))
      throw new ConfigurationException(
        "The session has spark.dynamicAllocation.enabled=true, and a rank's weights live in its executor for the whole run. Set " +
          "spark.dynamicAllocation.enabled=false and spark.executor.instances (or spark.cores.max) for this session."
      )

  private def batch(settings: Settings): Unit = {
    val (batch, workers) = (RunKeys.globalBatch(settings), settings(RunKeys.workers))
    if (batch < workers)
      throw new ConfigurationException(
        s"batch = $batch is the global batch and less than workers = $workers, so some workers would never see a row. " +
          s"Set batch to $workers or more, or use fewer workers."
      )
  }

  /** Waits for executors that are still registering, but not for ones that will not come. */
  private def slots(sc: SparkContext, settings: Settings): Unit = {
    val workers = settings(RunKeys.workers)
    val end = System.nanoTime() + settings(RunKeys.slotsWaitSeconds) * 1000000000L
    var seen = SparkFacts.slots(sc)
    var since = System.nanoTime()
    def stable = seen > 0 && (sc.isLocal || System.nanoTime() - since > StableMillis * 1000000L)
    while (seen < workers && !stable && System.nanoTime() < end) {
      Thread.sleep(PollMillis)
      val now = SparkFacts.slots(sc)
      if (now != seen) since = System.nanoTime()
      seen = now
    }
    if (seen < workers)
      throw new ConfigurationException(
        s"workers = $workers, but the session (master ${sc.master}) has $seen task slots now, and all workers must run at once. " +
          (if (seen == 0) "No executor registered: look at the master's page and the executors' logs. "
           else s"Set workers to $seen or less, ") +
          "or give the session more executors or cores (a slot is spark.task.cpus cores of an executor)."
      )
  }
}
