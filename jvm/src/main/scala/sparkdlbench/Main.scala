package sparkdlbench

import org.apache.spark.sql.SparkSession
import sparkdlbench.config.{RunFile, RunKeys}
import sparkdlbench.results.Json
import sparkdlbench.train.{Catalogue, Combination, Progress, ShuffleManagerCheck, TrainingRun}

import scala.annotation.tailrec
import scala.collection.immutable.ListMap

/**
 * The command line of the jar: `spark-submit --class sparkdlbench.Main <jar> run CONF [--set key=value]… [--debug]` and
 * `… list [axis]`. Exit status 0: success, 1: the run failed, 2: wrong usage or configuration.
 */
object Main {
  private val Usage = "Usage: run CONF [--set key=value]... [--debug] | list [axis]"
  private val ProgressMillis = 1000L

  def main(arguments: Array[String]): Unit = {
    val debug = arguments.contains("--debug")
    val status =
      try execute(arguments.toList.filterNot(_ == "--debug"))
      catch {
        case e: SparkDLException =>
          if (debug) e.printStackTrace() else System.err.println(s"sparkdl-bench: ${e.getMessage}")
          if (e.isInstanceOf[ConfigurationException]) 2 else 1
      }
    // Also after success: threads that Spark leaves behind must not keep the JVM.
    System.exit(status)
  }

  private def execute(arguments: List[String]): Int = arguments match {
    case "run" :: file :: rest => run(assignments(rest, RunFile.read(file)))
    case "list" :: Nil => list(Catalogue.axes)
    case "list" :: axis :: Nil => list(Seq(axis))
    case other =>
      throw new ConfigurationException(s"'${other.mkString(" ")}' is not a command of sparkdl-bench. $Usage")
  }

  @tailrec
  private def assignments(arguments: List[String], file: RunFile): RunFile = arguments match {
    case "--set" :: assignment :: rest => assignments(rest, file.set(assignment))
    case Nil => file
    case other :: _ => throw new ConfigurationException(s"'$other' is not an option of run. $Usage")
  }

  private def run(read: RunFile): Int = {
    val file = read.withProfile
    Combination.check(RunKeys.resolve(file.settings))
    val own = sys.props.toMap.filter(_._1.startsWith("spark."))
    ShuffleManagerCheck.check(file.spark.map { case (key, value) => sparkName(key) -> value } ++ own)
    val builder = SparkSession.builder().appName(s"sparkdl-bench ${file.settings("name")}")
    // spark-submit's own settings are there already and win over the file's.
    file.spark.foreach { case (key, value) =>
      val name = sparkName(key)
      if (System.getProperty(name) == null) builder.config(name, value)
    }
    val spark = builder.getOrCreate()
    try {
      val run = TrainingRun.prepare(spark.sparkContext, file.settings)
      val reporter = new Thread(() => report(run.progress), "sparkdl-progress")
      reporter.setDaemon(true)
      reporter.start()
      val result = run.train()
      reporter.join()
      val finals = Json.read(result.summary).path("final")
      println(s"test accuracy ${finals.path("test_accuracy").asText}, ${finals.path("seconds_total").asText} s")
      println(s"bytes ${Json.read(result.summary).path("bytes")}")
      println(s"results ${result.folder}")
      0
    } finally spark.stop()
  }

  private def sparkName(key: String): String = if (key == "master") "spark.master" else key

  /** A line at most once a second. */
  private def report(progress: Progress): Unit = {
    var seen = progress.currentVersion
    while (progress.isRunning) {
      progress.awaitChange(seen, ProgressMillis)
      seen = progress.currentVersion
      println(progress.line)
      Thread.sleep(ProgressMillis)
    }
  }

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
