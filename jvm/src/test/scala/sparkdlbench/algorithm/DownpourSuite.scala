package sparkdlbench.algorithm

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.{ConfigurationException, Json}
import sparkdlbench.train.RunResult
import sparkdlbench.LocalRuns

import java.nio.file.Files
import scala.jdk.CollectionConverters._

class DownpourSuite extends AnyFunSuite with LocalRuns {
  override protected def cores: Int = 5
  override protected def common: Map[String, String] = Map(
    "transport" -> "block-stream",
    "workers" -> "3",
    "epochs" -> "2",
    "algorithm" -> "downpour",
    "topology" -> "ps",
    "ps.shards" -> "2"
  )

  private def counts(result: RunResult, name: String): Seq[Long] =
    Json.read(result.summary).path("counts").path(name).elements.asScala.map(_.asLong).toSeq

  private val asynchronous =
    Seq("optimizer.name" -> "adagrad", "optimizer.learning_rate" -> "0.05", "epochs" -> "12")

  /** Without a bound a rank that gets no core for long makes gradients stale at will, and what is learned with them is chance. */
  private val bounded = "downpour.stale" -> "4"

  test("stale = 0 with plain SGD is sync-sgd up to rounding, for any number of workers and shards") {
    for (workers <- 1 to 4; shards <- Seq(1, workers).distinct) {
      val set = Seq("workers" -> workers.toString, "ps.shards" -> shards.toString, "optimizer.weight_decay" -> "0.001")
      val (one, other) = (run(set :+ ("algorithm" -> "sync-sgd"): _*), run(set :+ ("downpour.stale" -> "0"): _*))
      losses(one).zip(losses(other)).foreach { case (a, b) =>
        assert(math.abs(a - b) / a < 1e-4, s"$workers workers, $shards shards")
      }
      assert(counts(other, "lag") == Seq(2L * 29 * workers))
      assert(counts(other, "staleness").sum == 2L * 29 * workers * shards)
      assert(counts(other, "staleness").size <= workers)
    }
  }

  test("servers of their own: stale = 0 is sync-sgd up to rounding, and no bound learns; they push nothing") {
    val own = Seq("ps.place" -> "own", "ps.shards" -> "2")
    val (one, other) = (run(own :+ ("algorithm" -> "sync-sgd"): _*), run(own :+ ("downpour.stale" -> "0"): _*))
    losses(one).zip(losses(other)).foreach { case (a, b) => assert(math.abs(a - b) / a < 1e-4) }
    assert(counts(other, "lag").sum == 2L * 29 * 3 && counts(other, "staleness").sum == 2L * 29 * 3 * 2)
    val learned = run(asynchronous ++ own :+ bounded: _*)
    assert(accuracy(learned) > 0.8)
    assert(counts(learned, "lag").sum == 12L * 29 * 3)
  }

  test("learns with AdaGrad, plain and in other codecs; staleness and lag are in the results") {
    for {
      more <- Seq(
        Nil,
        Seq(bounded, "downpour.n_push" -> "3", "downpour.n_fetch" -> "2"),
        Seq(bounded, "optimizer.name" -> "sgd", "optimizer.learning_rate" -> "0.05", "downpour.n_fetch" -> "4"),
        Seq(bounded, "codec" -> "bf16"),
        Seq(bounded, "codec" -> "topk"),
        Seq("downpour.stale" -> "2", "downpour.n_push" -> "2")
      )
    } {
      val result = run(asynchronous ++ more: _*)
      val least = if (more.exists(_._1 == "downpour.stale")) 0.8 else 0.2 // of ten classes
      assert(accuracy(result) > least, s"$more: ${accuracy(result)}")
      assert(counts(result, "lag").sum == 12L * 29 * 3)
      assert(counts(result, "staleness").sum > 0)
      for ((_, stale) <- more.find(_._1 == "downpour.stale")) assert(counts(result, "lag").size <= stale.toInt + 1)
    }
  }

  test("bytes are as documented where the number of messages is; at most so elsewhere") {
    val (steps, shards, vector) = (10L, 2L, 4L * parameters)
    val set = Seq("max_steps" -> "10", "evaluate_every" -> "0")
    for (workers <- Seq(2, 4)) {
      val sent = bytes(run(set ++ Seq("workers" -> workers.toString, "downpour.stale" -> "0"): _*))
      // Each step a push and a fetch; once a fetch more, for the weights of the end.
      assert(
        sent == (workers - 1) * (steps * (40 * shards + vector) + 40 * shards + (steps + 1) * (16 * shards + vector))
      )
    }
    val most = 2 * ((steps + 1) * (56 * shards + 2 * vector))
    assert(bytes(run(set: _*)) <= most)
    assert(
      bytes(
        run(set ++ Seq("downpour.n_push" -> "5", "downpour.n_fetch" -> "5"): _*)
      ) <= 2 * (3 * (56 * shards + 2 * vector))
    )
  }

  test("goes on from a checkpoint, with other workers too, or says what is missing") {
    val folder = Files.createTempDirectory("checkpoints")
    val (kept, resume) = ("checkpoint.dir" -> folder.toUri.toString, "resume" -> folder.toUri.toString)
    run(asynchronous ++ Seq(bounded, kept, "checkpoint.every" -> "13", "epochs" -> "6"): _*)
    for (workers <- Seq("3", "2"))
      assert(accuracy(run(asynchronous ++ Seq(bounded, resume, "workers" -> workers): _*)) > 0.8)
    val message = intercept[ConfigurationException](run(resume, "optimizer.momentum" -> "0.9")).getMessage
    assert(message.contains("another algorithm or optimizer"))
  }

  test("goes on where the schedule and the optimizer's steps were") {
    val folder = Files.createTempDirectory("checkpoints").toUri.toString
    val set = Seq(
      "workers" -> "1",
      "ps.shards" -> "1",
      "downpour.stale" -> "0",
      "optimizer.momentum" -> "0.9",
      "optimizer.learning_rate" -> "0.02",
      "schedule.name" -> "cosine",
      "schedule.steps" -> "58",
      "epochs" -> "2"
    )
    run(set ++ Seq("checkpoint.dir" -> folder, "max_steps" -> "30"): _*)
    assert(run(set :+ ("resume" -> folder): _*).weights === run(set: _*).weights)
  }

  test("what it cannot do it refuses, and says why") {
    val refused = Seq(
      Seq("topology" -> "sliced") -> "Set topology = ps",
      Seq("optimizer.name" -> "lars") -> "lengths of whole layers",
      Seq("optimizer.name" -> "adam") -> "the number of its updates",
      Seq("optimizer.name" -> "adamw") -> "the number of its updates",
      Seq("downpour.n_push" -> "4", "downpour.stale" -> "2") -> "steps that nobody has pushed yet",
      Seq("ps.shards" -> "4") -> "a worker of its own",
      Seq("clip_norm" -> "1") -> "algorithm downpour does not know",
      Seq("checkpoint.dir" -> "/nowhere", "checkpoint.every_seconds" -> "5") -> "the first one's clock",
      Seq("transport" -> "shuffle", "topology" -> "sliced") -> "sync-sgd alone"
    )
    for ((chosen, why) <- refused) {
      val message = intercept[ConfigurationException](run(chosen: _*)).getMessage
      assert(message.contains(why), message)
    }
  }
}
