package sparkdlbench.train

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.LocalRuns
import sparkdlbench.common.{ConfigurationException, Json}
import sparkdlbench.config.{RunKeys, Settings, WorkerRange}

import java.nio.file.{Files, Paths}

/** Which number of workers a run with a range of them has, when it changes, and what is refused beside a range. */
class WorkerNumbersSuite extends AnyFunSuite with LocalRuns {
  override protected def common: Map[String, String] = Map("transport" -> "block-stream", "workers" -> "2..8")
  override protected def cores: Int = 3

  private val range = WorkerRange(2, 8)
  private def settings(values: (String, String)*): Settings =
    RunKeys.resolve(Map("workers" -> "2..8", "transport" -> "block-stream", "checkpoint.dir" -> "/c") ++ values)

  private def folder(): String = Files.createTempDirectory("checkpoints").toUri.toString

  test("a number of workers is one, or a range of which the lower bound is not above the upper one") {
    assert(RunKeys.workerRange(settings()).contains(range) && RunKeys.mostWorkers(settings()) == 8)
    for (one <- Seq("3", "3..3"))
      assert(
        RunKeys.workerRange(settings("workers" -> one)).isEmpty && settings("workers" -> one)(RunKeys.workers) == 3
      )
    for (wrong <- Seq("8..2", "0..2", "2..", "..8", "2.8", "2...8", "2..99999999999")) {
      val message = intercept[ConfigurationException](settings("workers" -> wrong)).getMessage
      assert(message.contains("or a range of them such as 2..8"), message)
    }
  }

  test(
    "what has no meaning when the number changes is refused by name, and so is what one number of the range cannot do"
  ) {
    def refusal(values: (String, String)*): String = Combination.refusal(settings(values: _*)).getOrElse("")
    assert(refusal() == "")
    assert(refusal("checkpoint.dir" -> "").contains("Set checkpoint.dir to a folder that the driver and all executors"))
    assert(refusal("batch_per_worker" -> "16").contains("with batch_per_worker = 16 the global batch would change"))
    val backups = Seq("backup_workers" -> "1", "topology" -> "ps")
    assert(refusal(backups: _*).contains("backup_workers = 1 is a number of one size of the group"))
    assert(refusal("topology" -> "ps", "ps.shards" -> "4").startsWith("workers = 2..8 may be 2, and then: Topology ps"))
    val pull = Seq("algorithm" -> "easgd", "easgd.rho" -> "1.5", "optimizer.learning_rate" -> "0.1")
    assert(refusal(pull: _*).startsWith("workers = 2..8 may be 7, and then: easgd.rho = 1.5"))
    val small = intercept[ConfigurationException](SessionCheck.batch(settings("batch" -> "6"))).getMessage
    assert(small.contains("batch = 6 is the global batch and less than workers = 2..8"), small)
  }

  test("as many workers as there are slots, without those that servers need") {
    val numbers = Seq(1 -> None, 2 -> Some(2), 5 -> Some(5), 8 -> Some(8), 20 -> Some(8))
    for ((slots, number) <- numbers) assert(WorkerNumbers.fitting(settings(), range, slots) == number, slots)
    val servers = settings("topology" -> "ps", "ps.place" -> "own", "ps.shards" -> "2")
    assert(WorkerNumbers.fitting(servers, range, 3).isEmpty && WorkerNumbers.fitting(servers, range, 6).contains(4))
  }

  test("a run begins with what there is, says so, and keeps the range for the next look at its settings") {
    val training = prepared("checkpoint.dir" -> folder(), "epochs" -> "1", "max_steps" -> "5")
    assert(training.setup.workers == 3 && training.setup.range.contains(range))
    val result = training.train()
    val run = Json.read(Files.readString(Paths.get(result.folder, "run.json")))
    assert(run.path("configuration").path("workers").asText == "2..8" && run.path("workers_at_start").asInt == 3)
    val summary = Json.read(result.summary)
    assert(summary.path("workers").asInt == 3 && summary.path("workers_range").asText == "2..8")
    assert(summary.path("worker_changes").isArray && summary.path("worker_changes").isEmpty)
  }

  test("a session that has too few slots for the lower bound is refused, with the range") {
    val message =
      intercept[ConfigurationException](prepared("checkpoint.dir" -> folder(), "workers" -> "4..8")).getMessage
    assert(message.contains("workers = 4..8, but the session") && message.contains("has 3 task slots now"), message)
  }

  test(
    "another number is wanted once there have been slots for it for elastic.settle, and not where they come and go"
  ) {
    var (now, slots) = (0L, 3)
    val setup = prepared("checkpoint.dir" -> folder(), "elastic.settle" -> "5").setup // with three workers
    def fitting = WorkerNumbers.fitting(setup.settings, range, slots)
    val watch = new WorkersWatch(setup, () => fitting, () => now)
    def after(seconds: Int): Boolean = { now += seconds * 1000000000L; watch.wantsChange() }
    assert(!after(1) && !after(60))
    slots = 5
    assert(!after(1) && !after(4) && after(1))
    slots = 6 // one more came: the wait begins anew, so that several that come together are one change
    assert(!after(1) && !after(4) && after(1))
    slots = 3
    assert(!after(1) && !after(60))
    slots = 1 // too few for any number: that is for Spark's retry
    assert(!after(1) && !after(60))
    slots = 2
    assert(!after(1) && after(5))
    Checkpointing.release(setup)
  }

  test("every algorithm goes on with more workers and with fewer: its loss goes on falling, and no value is lost") {
    val ways = Seq(
      Seq("algorithm" -> "sync-sgd", "codec" -> "topk", "in_memory_first" -> "off"),
      Seq("algorithm" -> "local-sgd"),
      Seq("algorithm" -> "easgd"),
      Seq("algorithm" -> "gossip"),
      Seq("algorithm" -> "downpour", "topology" -> "ps", "ps.shards" -> "1", "optimizer.momentum" -> "0"),
      Seq("algorithm" -> "lbfgs")
    )
    for (way <- ways) {
      val lbfgs = way.contains("algorithm" -> "lbfgs")
      val each = if (lbfgs) 3 else 60
      val settings = way ++ Seq("epochs" -> "1000", "evaluate_every" -> "1000")
      val losses = Seq(2, 3, 2).zipWithIndex
        .foldLeft(("", Seq.empty[Double])) { case ((resume, sofar), (number, index)) =>
          val at = folder()
          val own = Seq("workers" -> number.toString, "checkpoint.dir" -> at, "resume" -> resume)
          val result = run(settings ++ own :+ ("max_steps" -> (each * (index + 1)).toString): _*)
          assert(result.weights.forall(java.lang.Float.isFinite(_)), way)
          (at, sofar :+ Json.read(result.summary).path("final").path("test_loss").asDouble)
        }
        ._2
      assert(losses(1) < losses.head && losses(2) < losses(1) * 1.05, s"$way: $losses")
    }
  }

  test("ranks hear that they shall end from the submission that trains, and no later one") {
    RankMeetings.open("elastic", 10000)
    def answer(attempt: Int) = RankMeetings.answer(LeaveQuestion("elastic", attempt))
    assert(!answer(10000))
    RankMeetings.leave("elastic", leaves = true)
    assert(answer(10000) && answer(10001) && !answer(9999))
    RankMeetings.open("elastic", 20000)
    assert(!answer(20000))
    RankMeetings.close("elastic")
    RankMeetings.leave("elastic", leaves = true)
    assert(!answer(20000))
  }
}
