package sparkdlbench.train

import org.apache.hadoop.conf.Configuration
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.{ConfigurationException, Json}
import sparkdlbench.DigitsNets.{dropping, normal}
import sparkdlbench.LocalSpark

import java.nio.file.{Files, Path, Paths}
import scala.jdk.CollectionConverters._

/** Runs of nets with dropout and batch normalisation, on the embedded digits. */
class StatisticsRunSuite extends AnyFunSuite with LocalSpark {
  private lazy val folder: Path = Files.createTempDirectory("statistics-run-suite")

  private def run(settings: (String, String)*): RunResult = {
    val small = Map(
      "model.name" -> "file",
      "data.source" -> "digits",
      "batch" -> "50",
      "epochs" -> "2",
      "seed" -> "5",
      "optimizer.learning_rate" -> "0.1",
      "results" -> folder.resolve("results").toString
    )
    TrainingRun.prepare(sc, small ++ settings).train()
  }

  private def accuracy(result: RunResult) = Json.read(result.summary).path("final").path("test_accuracy").asDouble

  for (transport <- Seq("block-manager", "block-stream"))
    test(s"N workers drop the values that one worker drops: $transport") {
      val one = run(dropping, "transport" -> transport, "workers" -> "1")
      val three = run(dropping, "transport" -> transport, "workers" -> "3")
      val apart = one.weights.zip(three.weights).map { case (a, b) => math.abs(a - b) }.max
      assert(apart < 1e-4, s"weights differ by $apart")
      val other = run(dropping, "transport" -> transport, "workers" -> "1", "seed" -> "6")
      assert(one.weights.zip(other.weights).exists { case (a, b) => math.abs(a - b) > 0.01 })
    }

  for (transport <- Seq("block-manager", "block-stream"))
    test(s"running statistics are the mean over the workers, and evaluation uses them: $transport") {
      val one = run(normal, "transport" -> transport, "workers" -> "1")
      val three = run(normal, "transport" -> transport, "workers" -> "3")
      assert(accuracy(one) > 0.85 && accuracy(three) > 0.85)
      assert(three.statistics.length == 12)
      one.statistics.zip(three.statistics).foreach { case (a, b) =>
        assert(math.abs(a - b) < 0.3 * math.max(1f, math.abs(a)))
      }
      assert(three.statistics.drop(6).forall(variance => variance > 0 && variance != 1f))
    }

  test("a run that goes on from a checkpoint ends with the same statistics") {
    val checkpoints = folder.resolve("checkpoints").toUri.toString
    val whole =
      Seq(normal, "transport" -> "block-stream", "workers" -> "3", "max_steps" -> "40", "evaluate_every" -> "0")
    val kept = Seq("checkpoint.dir" -> checkpoints, "checkpoint.every" -> "15", "checkpoint.keep" -> "10")
    val result = run(whole ++ kept: _*)
    val store = new CheckpointStore(checkpoints, new Configuration())
    assert(store.complete == Seq(40, 30, 15))
    val middle = store.read(30).get
    assert(middle.vector("statistics", 12).exists(_.exists(_ != 0f)))
    assert(middle.parts.count(_.ranges.exists(_.name == "statistics")) == 1)
    Files.list(folder.resolve("checkpoints").resolve("step-000000000040")).forEach(file => Files.delete(file))
    Files.delete(folder.resolve("checkpoints").resolve("step-000000000040"))
    val resumed = run(whole :+ ("resume" -> checkpoints): _*)
    assert(resumed.weights === result.weights)
    assert(resumed.statistics === result.statistics)
  }

  test("synchronised batch normalisation: any number of workers trains what one does, and sends what it says") {
    val rows = run(normal, "transport" -> "block-stream", "workers" -> "1", "max_steps" -> "1").rows
    // So that some ranks have no row in an epoch's last step.
    val batch = (40 to 800).find(batch => rows % batch > 0 && rows % batch < 4).get.toString
    def trained(workers: Int, more: (String, String)*) = run(
      Seq(
        normal,
        "transport" -> "block-stream",
        "workers" -> workers.toString,
        "batch" -> batch,
        "epochs" -> "1"
      ) ++ more: _*
    )
    val (one, sync) = (trained(1), "model.sync_batch_norm" -> "true")
    def apart(a: Array[Float], b: Array[Float]) =
      a.zip(b).map { case (x, y) => math.abs(x - y).toDouble }.max / a.map(_.abs).max
    for (workers <- Seq(1, 2, 4)) {
      val result = trained(workers, sync)
      assert(apart(one.weights, result.weights) < 1e-4, s"$workers workers")
      assert(apart(one.statistics, result.statistics) < 1e-4, s"$workers workers")
    }
    assert(apart(one.weights, trained(4).weights) > 1e-3)
    def bytes(settings: (String, String)*) =
      Json
        .read(trained(3, ("max_steps" -> "4") +: settings: _*).summary)
        .path("bytes")
        .elements
        .asScala
        .map(_.asLong)
        .sum
    assert(bytes(sync) - bytes() == 4L * 3 * 2 * 4 * (13 + 12))
  }

  test("where nothing can travel within a pass, synchronised batch normalisation is refused with the reason") {
    def message(settings: (String, String)*) =
      intercept[ConfigurationException](run(settings :+ ("model.sync_batch_norm" -> "true"): _*)).getMessage
    for (transport <- Seq("block-manager", "shuffle"))
      assert(message(normal, "transport" -> transport).contains(s"transport $transport makes a Spark job per step"))
    assert(message(normal, "transport" -> "block-stream", "algorithm" -> "local-sgd").contains("weights differ"))
    assert(message(dropping, "transport" -> "block-stream").contains("has no layer of kind 'batch-norm'"))
    run(normal, "transport" -> "block-manager", "workers" -> "1", "model.sync_batch_norm" -> "true", "max_steps" -> "1")
  }

  private implicit class Rows(result: RunResult) {
    def rows: Int =
      Json.read(Files.readString(Paths.get(result.folder, "run.json"))).path("data").path("train_rows").asInt
  }
}
