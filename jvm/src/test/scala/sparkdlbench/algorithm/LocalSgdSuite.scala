package sparkdlbench.algorithm

import org.apache.hadoop.conf.Configuration
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.LocalRuns
import sparkdlbench.train.{CheckpointStore, RunResult}

import java.nio.file.Files

/** Whole runs in one process; the ranks exchange through memory, one by one. */
class LocalSgdSuite extends AnyFunSuite with LocalRuns {
  override protected def common: Map[String, String] = Map(
    "transport" -> "block-stream",
    "in_memory_first" -> "off",
    "workers" -> "3",
    "epochs" -> "2",
    "optimizer.momentum" -> "0.9",
    "bucket_bytes" -> "4000"
  )

  private def local(settings: (String, String)*): RunResult = run(settings :+ ("algorithm" -> "local-sgd"): _*)
  private def apart(one: RunResult, other: RunResult): Float =
    one.weights.zip(other.weights).map { case (a, b) => math.abs(a - b) }.max

  for (topology <- Seq("sliced", "ring", "recursive"))
    test(s"$topology: tau = 1 is sync-sgd up to rounding, for workers that do not divide the batch") {
      for (workers <- 1 to 4) {
        val settings = Seq("topology" -> topology, "workers" -> workers.toString)
        val (one, other) = (run(settings: _*), local(settings :+ ("local.tau" -> "1"): _*))
        losses(one).zip(losses(other)).foreach { case (a, b) =>
          assert(math.abs(a - b) / a < 1e-4, s"$workers workers")
        }
        assert(apart(one, other) < 1e-4, s"$workers workers")
      }
    }

  test("tau = 5 learns, sends a fifth of the bytes, and gives the same bits twice") {
    val often = local("epochs" -> "8", "local.tau" -> "1")
    val seldom = local("epochs" -> "8", "local.tau" -> "5")
    assert(accuracy(seldom) > 0.9, accuracy(seldom))
    // 29 steps an epoch; an average after each fifth step of the run, and one at each epoch's end.
    val steps = 8 * 29
    val averages = (1 to steps).count(made => made % 5 == 0 || made % 29 == 0)
    assert(bytes(often) == steps.toLong * 2 * 2 * parameters * 4)
    assert(bytes(seldom) == averages.toLong * 2 * 2 * parameters * 4)
    assert(local("epochs" -> "8", "local.tau" -> "5").weights === seldom.weights)
  }

  test("post-local: until its epoch every step averages, then every tau steps") {
    assert(local("local.tau" -> "7", "local.from_epoch" -> "2").weights === local("local.tau" -> "1").weights)
    assert(local("local.tau" -> "7", "local.from_epoch" -> "1").weights !== local("local.tau" -> "1").weights)
  }

  for (codec <- Seq("fp32", "topk", "threshold"))
    test(s"$codec: a run that goes on from its own end, or from a mean before it, ends with the same bits") {
      val set = Seq("epochs" -> "1", "local.tau" -> "4", "codec" -> codec)
      val folder = Files.createTempDirectory("checkpoints").toUri.toString
      val whole = local(set ++ Seq("checkpoint.dir" -> folder, "checkpoint.every" -> "12"): _*)
      val store = new CheckpointStore(folder, new Configuration())
      assert(store.complete == Seq(29L, 24L))
      assert(local(set :+ ("resume" -> folder): _*).weights === whole.weights, "from the end")
      val earlier = Files.createTempDirectory("earlier").toUri.toString
      store.read(24).get.parts.foreach(new CheckpointStore(earlier, new Configuration()).write)
      assert(local(set :+ ("resume" -> earlier): _*).weights === whole.weights, "from step 24")
    }

  for (codec <- Seq("bf16", "topk"))
    test(s"$codec rounds the way and not the weights") {
      val exact = local("epochs" -> "8", "local.tau" -> "4")
      val rounded = local("epochs" -> "8", "local.tau" -> "4", "codec" -> codec)
      assert(bytes(rounded) < bytes(exact))
      assert(math.abs(accuracy(exact) - accuracy(rounded)) < 0.03)
    }
}
