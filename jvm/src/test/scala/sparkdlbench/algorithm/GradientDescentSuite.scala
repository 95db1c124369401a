package sparkdlbench.algorithm

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.{ConfigurationException, DivergedException, Json}
import sparkdlbench.train.RunResult
import sparkdlbench.LocalRuns

import java.nio.file.Files

class GradientDescentSuite extends AnyFunSuite with LocalRuns {
  override protected def common: Map[String, String] = Map(
    "transport" -> "block-stream",
    "in_memory_first" -> "off",
    "workers" -> "3",
    "epochs" -> "6",
    "bucket_bytes" -> "4000",
    "optimizer.learning_rate" -> "0.5",
    "algorithm" -> "gd"
  )

  /** The largest difference of two runs' weights. */
  private def apart(one: RunResult, other: RunResult): Float =
    one.weights.zip(other.weights).map { case (a, b) => math.abs(a - b) }.max

  test("it is sync-sgd with all rows as its batch, to the bit where a rank computes its rows at once") {
    val whole = run("gd.rows" -> "100000")
    assert(run("algorithm" -> "sync-sgd", "batch" -> "1438").weights === whole.weights)
    assert(losses(whole).size == 6 && losses(whole).zip(losses(whole).tail).forall { case (a, b) => b < a })
    assert(bytes(whole) == 6 * 2 * 2 * 4L * parameters)
  }

  test("rows at a time change nothing but rounding, with any number of workers and any topology") {
    val whole = run("gd.rows" -> "100000", "workers" -> "1")
    for ((topology, workers, rows) <- Seq(("sliced", 2, 37), ("ring", 3, 1), ("recursive", 4, 359), ("ps", 3, 200)))
      assert(
        apart(run("topology" -> topology, "workers" -> s"$workers", "gd.rows" -> s"$rows"), whole) < 1e-5,
        topology
      )
    val own = run("topology" -> "ps", "ps.place" -> "own", "ps.shards" -> "1", "workers" -> "2", "gd.rows" -> "100")
    assert(apart(own, whole) < 1e-5)
  }

  test("a Spark job per step carries it as well") {
    val whole = run("gd.rows" -> "100")
    for ((transport, topology) <- Seq("block-manager" -> "sliced", "shuffle" -> "sliced", "shuffle" -> "tree"))
      assert(apart(run("transport" -> transport, "topology" -> topology, "gd.rows" -> "100"), whole) < 1e-5, transport)
  }

  test("goes on from a checkpoint with the same bits, with any optimiser") {
    val folder = Files.createTempDirectory("checkpoints").toUri.toString
    val more = Seq("optimizer.name" -> "adam", "optimizer.learning_rate" -> "0.01", "clip_norm" -> "1")
    val whole = run(more: _*)
    run(more ++ Seq("checkpoint.dir" -> folder, "epochs" -> "2"): _*)
    assert(run(more :+ ("resume" -> folder): _*).weights === whole.weights)
  }

  test("updates that are not finite are left out at all workers alike, also of rows in parts") {
    val far = Seq("optimizer.learning_rate" -> "1e30", "epochs" -> "30", "gd.rows" -> "50", "on_nonfinite" -> "skip") :+
      ("evaluate_every" -> "0")
    val message = intercept[DivergedException](run(far: _*)).getMessage
    assert(message.contains("the gradients of 10 steps in a row were not finite"), message)
    val fine = run("on_nonfinite" -> "skip", "gd.rows" -> "50")
    assert(Json.read(fine.summary).path("counts").path("skipped_steps").path(0).asInt(-1) == 0)
    assert(fine.weights === run("gd.rows" -> "50").weights)
  }

  test("what it cannot use it refuses, and says why") {
    val images = Seq("model.name" -> "resnet-18", "data.source" -> "synthetic", "data.shape" -> "3,32,32")
    val refused = Seq(
      Seq("backup_workers" -> "1", "topology" -> "ps") -> "Algorithm gd sums the gradients of all rows",
      Seq("batch_shares.by" -> "speed") -> "Algorithm gd deals out the training rows once",
      (images :+ ("model.sync_batch_norm" -> "true")) -> "with algorithm gd each worker computes its rows in parts of its own"
    )
    for ((chosen, why) <- refused) {
      val message = intercept[ConfigurationException](run(chosen: _*)).getMessage
      assert(message.contains(why), message)
    }
  }
}
