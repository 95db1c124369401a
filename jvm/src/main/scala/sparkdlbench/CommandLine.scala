package sparkdlbench

import org.apache.spark.{SPARK_VERSION, SparkException}
import org.apache.spark.sql.SparkSession
import sparkdlbench.bench.DataStatistics
import sparkdlbench.common.{ConfigurationException, Failures, Json, SparkDLException}
import sparkdlbench.config.{CheckpointKeys, RunFile, RunKeys}
import sparkdlbench.train.{
  Catalogue,
  Combination,
  EndOfJvm,
  RunProgress,
  SessionCheck,
  ShuffleManagerCheck,
  TrainingRun
}

import java.io.IOException
import java.lang.management.ManagementFactory
import scala.annotation.tailrec
import scala.collection.immutable.ListMap

/**
 * The command line of the jar, which `Main` calls: `spark-submit --class sparkdlbench.Main <jar> run CONF [--resume DIR]
 * [--set key=value]… [--debug]` and `… list [axis]` and `… data stats CONF [--set key=value]…`. Exit status 0: success, 1: the run failed, 2: wrong usage or configuration.
 */
object CommandLine {
  private val Usage =
    "Usage: run CONF [--resume DIR] [--set key=value]... [--debug] | data stats CONF [--set key=value]... | list [axis]"
  private val ProgressMillis = 1000L
  private val PluginsKey = "spark.plugins"

  /** The command has done its work, and the JVM ends by itself. */
  @volatile private var ended = false

  /** Ends the JVM with the exit status. */
  def start(arguments: Array[String]): Unit = {
    EndOfJvm.ofCommand(interrupted(_))
    val debug = arguments.contains("--debug")
    val status =
      try execute(arguments.toList.filterNot(_ == "--debug"))
      catch {
        case e @ (_: SparkDLException | _: IOException | _: SparkException) => failed(e, debug)
        case _: Exception if EndOfJvm.hasBegun => 1 // whatever Spark throws then is the end's doing
      }
    // What ends because of a signal has not ended by itself: the line is the hook's to say, whoever of both comes first.
    if (!EndOfJvm.hasBegun) ended = true
    // Also after success: threads that Spark leaves behind must not keep the JVM.
    System.exit(status)
  }

  /** The exit status. Where the JVM is ending, the signal that ends it has its own, and its own line. */
  private def failed(cause: Throwable, debug: Boolean): Int = {
    val reason = cause match {
      case refused: IOException =>
        s"The system refused to read or write: ${refused.getMessage} (${refused.getClass.getSimpleName}). Free space there, or name another " +
          "folder with --set results=DIR."
      case ours: SparkDLException => ours.getMessage
      case other => Failures.reason(other)
    }
    if (debug) cause.printStackTrace()
    else if (!EndOfJvm.hasBegun) System.err.println(s"sparkdl-bench: ${config.Redaction.text(reason)}")
    if (cause.isInstanceOf[ConfigurationException]) 2 else 1
  }

  /** The one line of a command that a signal ends; the JVM's exit status is 128 + the signal's number. */
  private def interrupted(runs: Seq[TrainingRun]): Option[String] = if (ended) None
  else {
    val wrote = runs.map(run => s" The run was cancelled. What it wrote is in ${run.folderPath}.").mkString
    Some(s"sparkdl-bench: interrupted.$wrote")
  }

  private def execute(arguments: List[String]): Int = arguments match {
    case "run" :: file :: rest => run(options(rest, RunFile.read(file), trains = true))
    case "data" :: "stats" :: file :: rest => statistics(options(rest, RunFile.read(file), trains = false))
    case "list" :: Nil => list(Catalogue.axes)
    case "list" :: axis :: Nil => list(Seq(axis))
    case other =>
      throw new ConfigurationException(s"'${other.mkString(" ")}' is not a command of sparkdl-bench. $Usage")
  }

  /** @param trains whether the command can go on from a checkpoint */
  @tailrec
  private[sparkdlbench] def options(arguments: List[String], file: RunFile, trains: Boolean): RunFile =
    arguments match {
      case "--set" :: assignment :: rest => options(rest, file.set(assignment), trains)
      case "--resume" :: folder :: rest if trains =>
        options(rest, file.set(s"${CheckpointKeys.resume.name}=$folder"), trains)
      case Nil => file
      case option :: Nil if option == "--set" || (option == "--resume" && trains) =>
        throw new ConfigurationException(s"'$option' needs a value behind it. $Usage")
      case other :: _ =>
        throw new ConfigurationException(
          s"'$other' is not an option of ${if (trains) "run" else "data stats"}. $Usage"
        )
    }

  private def run(read: RunFile): Int = {
    val file = read.withProfile
    Combination.check(RunKeys.resolve(file.settings))
    withSession(file) { spark =>
      val run = TrainingRun.prepare(spark.sparkContext, file.settings)
      run.transport.line.foreach(println)
      val reporter = new Thread(() => report(run.progress), "sparkdl-progress")
      reporter.setDaemon(true)
      reporter.start()
      val result = run.train()
      reporter.join()
      val finals = Json.read(result.summary).path("final")
      val measured =
        if (!finals.has("test_rmse")) s"test accuracy ${finals.path("test_accuracy").asText}"
        else s"test RMSE ${finals.path("test_rmse").asText}, R² ${finals.path("test_r2").asText}"
      println(s"$measured, ${finals.path("seconds_total").asText} s")
      println(s"bytes ${Json.read(result.summary).path("bytes")}")
      println(s"model ${result.saveModels()}")
      println(f"seconds since the command began $sinceStart%.1f")
      println(s"results ${result.folder}")
      result.warning.foreach(text => System.err.println(s"sparkdl-bench: $text"))
    }
    0
  }

  private def statistics(read: RunFile): Int = {
    val file = read.withProfile
    RunKeys.resolve(file.settings)
    withSession(file) { spark =>
      println(s"results ${Json.read(DataStatistics.run(spark.sparkContext, file.settings)).path("folder").asText}")
    }
    0
  }

  private def withSession(file: RunFile)(body: SparkSession => Unit): Unit = {
    // spark-submit's own settings are there already and win over the file's.
    val own = sys.props.toMap.filter(_._1.startsWith("spark."))
    val settings = file.spark.map { case (key, value) => sparkName(key) -> value } ++ own
    ShuffleManagerCheck.check(settings)
    val builder = SparkSession.builder().appName(s"sparkdl-bench ${file.settings("name")}")
    settings.foreach { case (name, value) => if (!own.contains(name)) builder.config(name, value) }
    plugins(settings.get(PluginsKey), SPARK_VERSION).foreach(builder.config(PluginsKey, _))
    val spark = builder.getOrCreate()
    try body(spark)
    finally spark.stop()
  }

  /**
   * `spark.plugins` with ours in it, which alone prepares a session of Spark 4 for every transport. Spark 3.5 makes its shuffle manager
   * before it has this jar, so there the user names the manager and the class path, as `block-stream` tells who has not.
   */
  private[sparkdlbench] def plugins(named: Option[String], spark: String): Option[String] = {
    def all = named.toSeq.flatMap(_.split(',')).map(_.trim).filter(_.nonEmpty)
    if (spark.startsWith("3.") || SessionCheck.hasPlugin(_ => named)) None
    else Some((all :+ classOf[SparkDLPlugin].getName).mkString(","))
  }

  private def sparkName(key: String): String = if (key == "master") "spark.master" else key

  /** A line at most once a second. */
  private def report(progress: RunProgress): Unit = {
    var (told, line) = (0, "")
    while (progress.isRunning) {
      progress.awaitChange(progress.currentVersion, ProgressMillis)
      val notices = progress.noticesAfter(told)
      told += notices.size
      notices.foreach(println(_))
      if (progress.line != line) {
        line = progress.line
        println(f"$sinceStart%.0f s  $line")
      }
      if (progress.isRunning) Thread.sleep(ProgressMillis)
    }
    progress.noticesAfter(told).foreach(println(_))
    println(f"$sinceStart%.0f s  ${progress.line}")
  }

  /** Seconds since the JVM began, as the user counts them. */
  private def sinceStart: Double =
    (System.currentTimeMillis() - ManagementFactory.getRuntimeMXBean.getStartTime) / 1e3

  private def list(axes: Seq[String]): Int = {
    axes.foreach { axis =>
      println(axis)
      Catalogue.variants(axis).foreach { variant: ListMap[String, Any] =>
        println(f"  ${variant("name")}%-16s ${variant("doc")}")
      }
    }
    0
  }
}
