package sparkdlbench.train

import org.apache.spark.SparkContext
import org.apache.spark.internal.Logging
import org.apache.spark.sparkdlbench.SparkFacts
import sparkdlbench.common.{ConfigurationException, Facts}
import sparkdlbench.config.{CheckpointKeys, RunKeys, Settings, Variants}
import sparkdlbench.engine.EngineVariant
import sparkdlbench.topology.Ps
import sparkdlbench.transport.{OneStageTransport, TransportVariant}

/** What a session must offer before any Spark job of a run starts. Every complaint says what to do. */
object SessionCheck extends Logging {
  private val PollMillis = 100L
  private val Plugin = "sparkdlbench.SparkDLPlugin"
  private val LocalCluster = """local-cluster\[\s*(\d+)\s*,.*""".r
  private val StableMillis = 15000L
  private val MovesBlocks = "spark.storage.decommission.enabled"

  /** The transport whose messages Spark takes for uploads of blocks. */
  private val BlockUploads = "block-stream"

  /** A stopped context would fail much later, and without a reason that a user knows. */
  def running(sc: SparkContext): Unit = if (sc.isStopped) throw new ConfigurationException(Stopped)

  private[sparkdlbench] val Stopped =
    "The Spark session is stopped, so nothing can train in it. Start a new one (SparkSession.builder()…getOrCreate(), from Python through " +
      "sparkdl_bench.configure) and use that one."

  def check(sc: SparkContext, settings: Settings): Unit = checks(sc, settings).foreach { case (_, check) => check() }

  /** All of them, in their order, by the names that the doctor gives what they find; each throws a ConfigurationException. */
  private[sparkdlbench] def checks(sc: SparkContext, settings: Settings): Seq[(String, () => Unit)] = Seq(
    ("spark-version", () => version(sc.version, Facts.build.getOrElse("spark_line", ""))),
    (
      "shuffle-manager",
      () => ShuffleManagerCheck.check(sc.getConf.getAll.toMap, executorsRun = SparkFacts.slots(sc) > 0)
    ),
    ("dynamic-allocation", () => dynamicAllocation(sc.getConf.getOption)),
    ("worker-range", () => workerRange(sc, settings)),
    (
      "decommissioning",
      () => if (!sc.isLocal) decommissioning(sc.getConf.getOption, settings).foreach(text => logWarning(text))
    ),
    ("encryption", () => encryption(SparkFacts.encrypts(sc.getConf), settings)),
    ("batch", () => batch(settings)),
    ("engine", () => if (sc.master.startsWith("local")) engine(settings)),
    ("slots", () => slots(sc, settings))
  )

  /** What the workers' host lacks, where that is this one: else all of them would say so one after another, in Spark's retries. */
  private[sparkdlbench] def engine(settings: Settings): Unit =
    Variants
      .find[EngineVariant]("engine", settings(RunKeys.engine))
      .lacking(settings)
      .foreach(text => throw new ConfigurationException(text))

  /**
   * @param spark
   *   the session's version
   * @param line
   *   the Spark line that this jar was built for
   */
  private[sparkdlbench] def version(spark: String, line: String): Unit =
    if (!spark.startsWith(s"$line."))
      throw new ConfigurationException(
        s"This jar of sparkdl-bench was built for Spark $line.x, and the session runs Spark $spark. Use the jar whose name says " +
          s"spark-${spark.split('.').take(if (spark.startsWith("4.")) 1 else 2).mkString(".")} (Spark 3.5 and 4.x are supported)."
      )

  /** @param property a Spark property's value by its name */
  private[sparkdlbench] def dynamicAllocation(property: String => Option[String]): Unit =
    if (property("spark.dynamicAllocation.enabled").exists(_.trim.equalsIgnoreCase("true")))
      throw new ConfigurationException(
        "The session has spark.dynamicAllocation.enabled=true, and Spark runs no barrier stage then (SPARK-24942), which all ranks of a run are; besides, it " +
          "would take executors away whose ranks' weights are there. Set spark.dynamicAllocation.enabled=false and spark.executor.instances (or " +
          "spark.cores.max) for this session. A run that takes in executors that come and lets go those that are decommissioned or lost has a range of " +
          "workers, such as workers = 2..8."
      )

  /**
   * What the session's way to decommission executors costs a run, and what to set instead; None where it costs nothing. No complaint: a
   * session in which nobody decommissions an executor is none the worse for it.
   *
   * @param property
   *   a Spark property's value by its name
   */
  private[sparkdlbench] def decommissioning(property: String => Option[String], settings: Settings): Option[String] = {
    val name = settings(RunKeys.transport)
    val movesBlocks = property(MovesBlocks).exists(_.trim.equalsIgnoreCase("true"))
    if (!movesBlocks || name != BlockUploads) None
    else
      Some(
        s"The session has $MovesBlocks=true, with which an executor that is decommissioned refuses every block that is uploaded to it from then on, and " +
          s"transport $name sends its messages as such uploads. The step that the ranks are in fails then, and they go on from the newest checkpoint " +
          "(from step 0 without checkpoint.dir) instead of one that is made for the change. Set spark.decommission.enabled=true alone, without " +
          s"$MovesBlocks, or use another transport, such as tcp."
      )
  }

  /** Ranks ask the driver whether they shall end at a checkpoint, which only the plugin carries. */
  private def workerRange(sc: SparkContext, settings: Settings): Unit =
    RunKeys.workerRange(settings).foreach { range =>
      if (!sc.isLocal && !hasPlugin(sc.getConf.getOption) && isOneStage(settings))
        throw new ConfigurationException(
          s"workers = $range has the ranks ask the driver whether their number shall change, and this session has no way for that. Start it with " +
            "spark.plugins=sparkdlbench.SparkDLPlugin (from Python through sparkdl_bench.configure), or set workers to one number."
        )
    }

  private[sparkdlbench] def hasPlugin(property: String => Option[String]): Boolean =
    property("spark.plugins").exists(_.split(',').map(_.trim).contains(Plugin))

  private def isOneStage(settings: Settings): Boolean =
    Variants.find[TransportVariant]("transport", settings(RunKeys.transport)).isInstanceOf[OneStageTransport]

  /** The settings with the number of workers that a run with a range of them begins with: as many as there are slots for now. */
  private[sparkdlbench] def numbered(sc: SparkContext, settings: Settings): Settings =
    RunKeys.workerRange(settings).fold(settings) { range =>
      val number = WorkerNumbers.fitting(settings, range, SparkFacts.slots(sc)).getOrElse(range.least)
      settings.updated(RunKeys.workers, number.toString)
    }

  /** A session that encrypts must not get a transport that does not, unless somebody says so. */
  private[sparkdlbench] def encryption(sessionEncrypts: Boolean, settings: Settings): Unit =
    Variants.find[TransportVariant]("transport", settings(RunKeys.transport)) match {
      case transport: OneStageTransport if sessionEncrypts =>
        transport.inTheClear(settings).foreach { remedy =>
          if (!settings(RunKeys.allowPlaintext))
            throw new ConfigurationException(
              s"The session encrypts its connections (spark.network.crypto.enabled, SASL or RPC TLS), and transport ${transport.name} would " +
                s"send gradients and weights in the clear: $remedy, use an in-band transport such as block-stream, or set " +
                "allow_plaintext = true to send them all the same."
            )
          logWarning(
            s"The session encrypts its connections, transport ${transport.name} does not: gradients and weights travel in the clear " +
              "(allow_plaintext = true)."
          )
        }
      case _ =>
    }

  private[sparkdlbench] def batch(settings: Settings): Unit = {
    val (batch, workers) = (RunKeys.globalBatch(settings), RunKeys.mostWorkers(settings))
    if (batch < workers)
      throw new ConfigurationException(
        s"batch = $batch is the global batch and less than workers = ${settings.entries(RunKeys.workers.name)}, so some workers would never see a row. " +
          s"Set batch to $workers or more, or use fewer workers."
      )
  }

  /** How many executors the session has asked for, where it says so. */
  private def asked(sc: SparkContext): Option[Int] = sc.master match {
    case LocalCluster(executors) => Some(executors.toInt)
    case _ => sc.getConf.getOption("spark.executor.instances").map(_.trim.toInt)
  }

  /** Whether as many executors run as the session has asked for, where it says how many. */
  private def allHere(sc: SparkContext): Boolean = asked(sc).exists(SparkFacts.executors(sc) >= _)

  private def waited(sc: SparkContext, workers: Int, slots: Int): String = asked(sc) match {
    case Some(executors) => s"starting executors: ${SparkFacts.executors(sc)} of $executors registered"
    case None => s"waiting for $workers slots, $slots registered"
  }

  /** Waits for executors that are still registering, but not for ones that will not come. */
  private[sparkdlbench] def slots(sc: SparkContext, settings: Settings): Unit = {
    val servers = Ps.ownServers(settings)
    val workers = settings(RunKeys.workers) + servers
    val enough = RunKeys.mostWorkers(settings) + servers
    val end = System.nanoTime() + settings(RunKeys.slotsWaitSeconds) * 1000000000L
    var seen = SparkFacts.slots(sc)
    var since = System.nanoTime()
    def stable =
      seen > 0 && (sc.isLocal || allHere(sc) || System.nanoTime() - since > quietMillis(seen) * 1000000L)
    // Of a range what there is will do, once no more executors seem to come.
    def quietMillis(slots: Int) =
      if (slots < workers) StableMillis else settings(CheckpointKeys.settleSeconds) * 1000L
    Waiting.during { (say, cancelled) =>
      while (seen < enough && !stable && !cancelled() && System.nanoTime() < end) {
        say(waited(sc, enough, seen))
        Thread.sleep(PollMillis)
        val now = SparkFacts.slots(sc)
        if (now != seen) since = System.nanoTime()
        seen = now
      }
    }
    if (seen < workers) seen = SparkFacts.slots(sc) // the last executor may have come between the two looks
    if (seen < workers)
      throw new ConfigurationException(
        s"workers = ${settings.entries(RunKeys.workers.name)}${if (servers > 0) s" and $servers servers (ps.place = own)"
          else ""}, but the session (master " +
          s"${sc.master}) has $seen task slots now, and all ${if (servers > 0) "of them" else "workers"} must run at once. " +
          (if (seen == 0)
             "No executor registered: look at the master's page and the executors' logs, or wait longer with slots_wait."
           else
             s"Set workers to ${math.max(1, seen - servers)} or less${if (enough > workers) " (or a range that begins there)"
               else ""}, or give the session more executors or cores (a slot is spark.task.cpus cores of an executor).")
      )
  }
}
