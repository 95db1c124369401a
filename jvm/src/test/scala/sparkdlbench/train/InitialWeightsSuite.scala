package sparkdlbench.train

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.LocalRuns
import sparkdlbench.common.ConfigurationException
import sparkdlbench.results.{ModelFolder, SavedModel}

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path}

/** Runs that start from the weights of a file. */
class InitialWeightsSuite extends AnyFunSuite with LocalRuns {
  private lazy val net: Path = {
    val path = Files.createTempFile("net", ".json")
    Files.write(
      path,
      """{"name": "net", "input_shape": [64], "classes": 10, "layers": [
        {"name": "fc1", "kind": "linear", "options": {"in": 64, "out": 32}, "initializer": "he-uniform"},
        {"name": "bn", "kind": "batch-norm", "options": {"channels": 32}, "initializer": "one"},
        {"name": "relu", "kind": "relu"},
        {"name": "fc2", "kind": "linear", "options": {"in": 32, "out": 10}, "initializer": "xavier-uniform"}]}"""
        .getBytes(UTF_8)
    )
    path
  }

  override protected def common: Map[String, String] =
    Map("model.name" -> "file", "model.spec" -> net.toString, "workers" -> "3", "epochs" -> "1")

  private lazy val trained = run()
  private lazy val folder = trained.saveModels()

  private def refusal(file: Path): String = {
    val message = intercept[ConfigurationException](prepared("model.initial_weights" -> file.toString)).getMessage
    assert(!message.contains('\n'))
    message
  }

  for (
    (name, settings) <- Seq(
      "one stage" -> Seq("transport" -> "block-stream"),
      "a parameter server" -> Seq("transport" -> "block-stream", "topology" -> "ps", "ps.shards" -> "2"),
      "one job per step" -> Seq("transport" -> "block-manager"),
      "a tree, whose weights the driver has" -> Seq("transport" -> "shuffle", "topology" -> "tree")
    )
  )
    test(s"every rank starts from them: $name") {
      val same = run(settings ++ Seq("epochs" -> "0", "seed" -> "9", "model.initial_weights" -> folder.toString): _*)
      assert(same.weights.toSeq == trained.weights.toSeq)
      // The mean over the ranks rounds.
      val off = same.statistics.zip(trained.statistics).map { case (one, other) => math.abs(one - other) }
      assert(off.max <= 1e-6f && trained.statistics.exists(_ != 0f))
      val further = run(settings :+ ("model.initial_weights" -> folder.resolve("weights.npz").toString): _*)
      assert(accuracy(further) >= accuracy(trained) - 0.05)
    }

  test("a run that resumes takes those of its checkpoint, and reads no file") {
    val checkpoints = Files.createTempDirectory("checkpoints").resolve("own").toString
    val before = run("checkpoint.dir" -> checkpoints, "checkpoint.every" -> "10", "transport" -> "block-stream")
    val resumed =
      run("resume" -> checkpoints, "model.initial_weights" -> "/nowhere.npz", "transport" -> "block-stream")
    assert(resumed.weights.toSeq == before.weights.toSeq)
  }

  test("files that are none, or of another model, are refused by name before any job") {
    assert(refusal(net.resolveSibling("nowhere.npz")).contains("There is no file"))
    assert(refusal(net).contains("reads the folder of a saved model or an archive of NumPy (.npz) alone"))
    val cut = Files.createTempFile("cut", ".npz")
    Files.write(cut, Files.readAllBytes(folder.resolve("weights.npz")).take(999))
    assert(refusal(cut).contains(s"The weights in '$cut' do not fit the model net"))

    def other(change: SavedModel => SavedModel): Path = {
      val changed = Files.createTempDirectory("other")
      ModelFolder.write(changed, change(SavedModel.read(folder)))
      changed
    }
    val nan = other(model => model.copy(weights = model.weights.updated(3, Float.NaN)))
    assert(refusal(nan).contains("'fc1.weight' holds NaN or infinite values"))
    val foreign = run("model.name" -> "mlp", "epochs" -> "0").saveModels()
    assert(refusal(foreign).contains("weights.npz lacks 'bn.weight'"))
    val more = intercept[ConfigurationException](
      prepared("model.name" -> "mlp", "model.initial_weights" -> folder.toString)
    ).getMessage
    assert(
      more.contains("it holds 'bn.weight', 'bn.bias', 'bn.running_mean', 'bn.running_var', which the model has not")
    )
  }
}
