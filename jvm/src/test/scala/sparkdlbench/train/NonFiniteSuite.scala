package sparkdlbench.train

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.{ConfigurationException, DivergedException, Json}
import sparkdlbench.config.RunKeys
import sparkdlbench.LocalRuns

import java.nio.file.{Files, Paths}

/** A loss that is not finite, in both execution shapes. */
class NonFiniteSuite extends AnyFunSuite with LocalRuns {
  override protected def common: Map[String, String] = Map("workers" -> "2", "epochs" -> "1", "max_steps" -> "20")

  private val shapes = Seq("block-stream", "block-manager")
  private val tooFast = "optimizer.learning_rate" -> "1e30"

  private def summary(progress: String) =
    Json.read(Files.readString(Paths.get(Json.read(progress).path("results").asText, "summary.json")))

  test("the run ends at the first such step, with what to lower, and the summary says diverged") {
    for (transport <- shapes) {
      val run = prepared("transport" -> transport, tooFast)
      val error = intercept[DivergedException](run.train())
      assert(
        error.getMessage.matches("""The training diverged in step [23] of 20 \(epoch 1\): the training loss is .*""")
      )
      assert(
        error.getMessage.contains("Lower optimizer.learning_rate (it is 1.0E30), warm it up (schedule.warmup_steps")
      )
      assert(error.getMessage.endsWith("or bound the gradient (clip_norm = 1)."))
      // Executors log what a task throws, in local sessions on the user's own screen.
      assert(new DivergedException("Step 3.").getStackTrace.isEmpty)
      val progress = Json.read(run.progressJson)
      assert((progress.path("state").asText, progress.path("error_kind").asText) == (("diverged", "diverged")))
      val told = summary(run.progressJson)
      assert(told.path("status").asText == "diverged" && told.path("error").asText == error.getMessage)
      assert(error.step.contains(told.path("diverged_at_step").asLong))
    }
  }

  test("rows and labels of a table in units of their own are named, with what scales them") {
    def told(changes: (String, String)*) = {
      val run = prepared(Seq("transport" -> "block-manager", tooFast) ++ changes: _*)
      NonFinite.diverged(run.setup, 0, "x").getMessage
    }
    val rows = " The rows' values are in units of their own; data.normalize = standard scales them."
    val file = Files.createTempFile("units", ".csv")
    try {
      Files.writeString(file, (1 to 40).map(id => s"${id * 1000},$id\n").mkString)
      val cache = "data.cache_dir" -> results.resolve("cache").toString
      val table =
        Seq("data.source" -> "csv", "data.path" -> file.toString, cache, "loss.name" -> "mean-squared", "batch" -> "10")
      val labels =
        " A regression's loss grows with the labels' unit: train on labels near -1 to 1, such as (label - mean) / standard " +
          "deviation, and undo that on the predictions."
      assert(told(table: _*).endsWith(rows + labels))
      assert(told(table :+ ("data.normalize" -> "standard"): _*).endsWith("(clip_norm = 1)." + labels))
    } finally Files.delete(file)
  }

  test("weights that are spoilt by the last step are found by the evaluation") {
    val error = intercept[DivergedException](
      run("transport" -> "block-stream", "max_steps" -> "1", "optimizer.learning_rate" -> "3e38")
    )
    assert(error.getMessage.contains("in step 1 of 1 (epoch 1): the test loss after it is"), error.getMessage)
  }

  test("continue trains to the end, and the results say that the loss is not finite") {
    for (transport <- shapes) {
      val result = run("transport" -> transport, tooFast, "on_nonfinite" -> "continue")
      val told = Json.read(result.summary)
      assert(told.path("status").asText == "diverged" && told.path("final").path("steps").asInt == 20)
      assert(
        told.path("error").asText ==
          "The loss is not finite from epoch 1 on; on_nonfinite = continue trained to the end all the same."
      )
    }
  }

  test("skip changes nothing where all is finite, and gives up after ten steps in a row") {
    for (transport <- shapes :+ "shuffle") {
      val plain = run("transport" -> transport)
      val skipping = run("transport" -> transport, "on_nonfinite" -> "skip")
      assert(plain.weights === skipping.weights)
      assert(Json.read(skipping.summary).path("counts").path("skipped_steps").path(0).asInt(-1) == 0)
      val error = intercept[DivergedException](run("transport" -> transport, tooFast, "on_nonfinite" -> "skip"))
      assert(error.getMessage.contains("the gradients of 10 steps in a row were not finite"), error.getMessage)
    }
  }

  test("skip is refused where it cannot be done at all workers alike") {
    def refusal(settings: (String, String)*) = intercept[ConfigurationException](
      Combination.check(RunKeys.resolve(Map("on_nonfinite" -> "skip") ++ settings))
    ).getMessage
    for (algorithm <- Seq("local-sgd", "easgd", "gossip", "lbfgs"))
      assert(refusal("algorithm" -> algorithm).contains(s"with algorithm $algorithm each worker's updates are its own"))
    assert(refusal("algorithm" -> "downpour", "topology" -> "ps").contains("with algorithm downpour"))
    for (codec <- Seq("threshold", "topk"))
      assert(refusal("codec" -> codec).contains(s"codec $codec keeps what it did"))
    assert(refusal("topology" -> "ps", "backup_workers" -> "1").contains("backup_workers = 1 lets each shard"))
    assert(refusal("topology" -> "tree").contains("with topology tree the driver alone updates"))
  }
}
