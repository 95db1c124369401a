package sparkdlbench

import org.scalatest.Suite
import sparkdlbench.common.Json
import sparkdlbench.train.{RunResult, TrainingRun}

import java.nio.file.{Files, Path}
import scala.jdk.CollectionConverters._

/** Whole runs of a small net on the digits, in a Spark application in this JVM. */
trait LocalRuns extends LocalSpark { this: Suite =>
  protected lazy val results: Path = Files.createTempDirectory("results")

  /** What a suite's runs have in common, besides a hidden layer of 32. */
  protected def common: Map[String, String]

  protected val parameters: Int = 64 * 32 + 32 + 32 * 10 + 10

  protected def prepared(settings: (String, String)*): TrainingRun = TrainingRun.prepare(
    sc,
    Map("model.hidden" -> "32", "batch" -> "50", "results" -> results.toString) ++ common ++ settings
  )
  protected def run(settings: (String, String)*): RunResult = prepared(settings: _*).train()

  protected def accuracy(result: RunResult): Double =
    Json.read(result.summary).path("final").path("test_accuracy").asDouble

  /** Payload sent over all channels. */
  protected def bytes(result: RunResult): Long =
    Json.read(result.summary).path("bytes").elements.asScala.map(_.asLong).sum
}
