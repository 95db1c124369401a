package sparkdlbench.train

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.{ConfigurationException, Json}
import sparkdlbench.config.RunKeys
import sparkdlbench.LocalRuns

import java.nio.file.{Files, Paths}
import scala.jdk.CollectionConverters._

/** `keep_best` in both execution shapes. */
class BestWeightsSuite extends AnyFunSuite with LocalRuns {
  override protected def common: Map[String, String] =
    Map("workers" -> "3", "epochs" -> "4", "optimizer.learning_rate" -> "4")

  test("the best evaluation's weights are those of a run that ends there; the model folders hold both") {
    for (transport <- Seq("block-stream", "block-manager")) {
      val result = run("transport" -> transport, "keep_best" -> "loss")
      val summary = Json.read(result.summary)
      val losses = summary.path("history").elements.asScala.map(_.path("test_loss").asDouble).toSeq
      val best = summary.path("best")
      assert(best.path("test_loss").asDouble == losses.min && losses(best.path("epoch").asInt - 1) == losses.min)
      val shorter = run("transport" -> transport, "epochs" -> best.path("epoch").asText)
      assert(result.best.get.weights.head._2 === shorter.weights && shorter.best.isEmpty)
      assert(result.saveModels() == Paths.get(result.folder, "model"))
      for (name <- Seq("model", "best")) assert(Files.exists(Paths.get(result.folder, name, "weights.npz")))
    }
  }

  test("a run ends after evaluations in a row that are no better, with what a run of so many epochs has") {
    for (
      (transport, algorithm) <- Seq(
        "block-stream" -> "sync-sgd",
        "block-stream" -> "local-sgd",
        "block-manager" -> "sync-sgd"
      )
    ) {
      val how = Seq("transport" -> transport, "algorithm" -> algorithm)
      val asked = how ++ Seq("keep_best" -> "loss", "early_stopping" -> "2", "epochs" -> "30")
      val result = run(asked: _*)
      val summary = Json.read(result.summary)
      val epochs = summary.path("history").size
      assert(epochs < 30 && epochs == summary.path("best").path("epoch").asInt + 2)
      assert(summary.path("status").asText == "success")
      val shorter = run((how :+ ("epochs" -> epochs.toString)): _*)
      assert(result.weights === shorter.weights)
      val started =
        Files.readAllLines(Paths.get(result.folder, "events.jsonl")).asScala.count(_.contains("\"epoch_start\""))
      assert(started == epochs)
    }
  }

  test("early_stopping needs evaluations, and something to compare them by") {
    def refused(settings: (String, String)*) = intercept[ConfigurationException](
      Combination.check(RunKeys.resolve(Map("early_stopping" -> "3") ++ settings))
    ).getMessage
    assert(refused().contains("Set keep_best = loss or accuracy, or early_stopping = 0."))
    assert(refused("keep_best" -> "loss", "evaluate_every" -> "0").contains("Set evaluate_every = 1, or"))
  }

  test("without a folder the model goes to a temporary one") {
    val result = run("transport" -> "block-stream", "epochs" -> "0").copy(folder = "/proc/none")
    val model = result.saveModels()
    assert(model.toString.contains("sparkdl-bench-model-") && Files.exists(model.resolve("model.json")))
  }

  test("results that can no longer be written end no run: the weights come back, and a temporary folder has the rest") {
    val run = prepared("transport" -> "block-stream", "epochs" -> "1", "optimizer.learning_rate" -> "0.1")
    val folder = Paths.get(Json.read(run.progressJson).path("results").asText)
    Files.list(folder).iterator.asScala.foreach(Files.delete)
    Files.delete(folder)
    Files.createFile(folder) // nothing can be made below it
    val result = run.train()
    assert(result.weights.length == parameters && !result.weights.exists(_.isNaN))
    assert(result.folder != folder.toString && Files.exists(Paths.get(result.folder, "summary.json")))
    assert(result.warning.get.startsWith(s"The results folder $folder can no longer be written ("))
    assert(result.warning.get.contains(s"so this run's results are in ${result.folder}."))
    assert(Json.read(run.progressJson).path("results").asText == result.folder)
  }

  test("a regression has no accuracy to keep the best by") {
    val settings = Map("keep_best" -> "accuracy", "loss" -> "mse", "data" -> "csv")
    val message = intercept[ConfigurationException](Combination.check(RunKeys.resolve(settings))).getMessage
    assert(message.contains("Set keep_best = loss, or off."), message)
  }

  test("servers of their own take no part in evaluations, so best weights are refused with them") {
    val settings = Map("keep_best" -> "loss", "topology" -> "ps", "ps.place" -> "own", "transport" -> "tcp")
    val message = intercept[ConfigurationException](Combination.check(RunKeys.resolve(settings))).getMessage
    assert(message.startsWith("keep_best = loss has all ranks compare each evaluation, and servers"))
  }
}
