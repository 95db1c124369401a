package sparkdlbench.train

import com.fasterxml.jackson.databind.JsonNode
import org.apache.hadoop.conf.Configuration
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.LocalRuns
import sparkdlbench.common.Json

import java.nio.file.{Files, Path, Paths}
import scala.jdk.CollectionConverters._

/** Runs of the one-stage shape whose ranks share one process, so one group of ranks that sum in memory. */
class StageRunSuite extends AnyFunSuite with LocalRuns {

  override protected def common: Map[String, String] = Map(
    "transport" -> "block-stream",
    "workers" -> "3",
    "epochs" -> "2",
    "evaluate_every" -> "0",
    "optimizer.momentum" -> "0.9"
  )

  private def file(result: RunResult, name: String) = Json.read(Files.readString(Paths.get(result.folder, name)))

  test("the groups are recorded, and all bytes stay in the process") {
    val together = run()
    val apart = run("in_memory_first" -> "off")
    def groups(result: RunResult) = file(result, "run.json").path("rank_groups").toString
    assert(groups(together) == "[[0,1,2]]" && groups(apart) == "[[0],[1],[2]]")
    assert(file(together, "summary.json").path("bytes").fieldNames.asScala.toSeq == Seq("in-process"))
    // In one process every rank sums its part of the vector in the order of ranks, as `sliced` does.
    assert(together.weights === apart.weights)
    val events = Files.readAllLines(Paths.get(together.folder, "events.jsonl")).asScala.map(Json.read(_))
    val told = events.filter(_.path("key").asText == "rank_groups")
    assert(told.size == 1 && !told.head.path("metadata").path("bits_may_differ").asBoolean)
  }

  test("progress has the loss of the last step, however short the epochs are") {
    val training = prepared()
    val result = training.train()
    val told = Json.read(training.progressJson)
    val first = file(result, "summary.json").path("history").path(0).path("train_loss").asDouble
    assert(told.path("loss").asDouble < first, "that of an early step")
    assert(told.path("rows_per_second").asDouble > 0 && told.path("epoch").asInt == 2)
    assert(told.path("doing").asText == "training" && told.path("notices").isEmpty)
  }

  test("a batch that is larger than the training set is told") {
    val training = prepared("batch" -> "5000", "epochs" -> "1")
    val notice = file(training.train(), "summary.json").path("notices").path(0)
    assert(notice.path("kind").asText == "batch_of_all_rows")
    val told = Json.read(training.progressJson).path("notices").path(0).asText
    assert(
      told.matches(
        "batch of all rows: the batch of 5000 is larger than the training set, so each step takes all \\d+ rows"
      )
    )
  }

  test("the phases add up to the steps, and the steps with the rest to the epochs; of each rank and step") {
    for (more <- Seq(Nil, Seq("topology" -> "ps", "ps.place" -> "own", "ps.shards" -> "1"))) {
      val folder = Files.createTempDirectory("checkpoints").toUri.toString
      val checkpoints = Seq("checkpoint.dir" -> folder, "checkpoint.every" -> "10")
      val result = run(more ++ checkpoints ++ Seq("epochs" -> "3", "evaluate_every" -> "1"): _*)
      val (summary, told) = (file(result, "summary.json"), file(result, "phases.json"))
      def numbers(node: JsonNode): Seq[Double] = node.elements.asScala.map(_.asDouble).toSeq
      val steps = numbers(file(result, "steps.json"))
      assert(math.abs(numbers(summary.path("phases_ms")).sum / (steps.sum / steps.size) - 1) < 0.02)
      val history = summary.path("history").elements.asScala.toSeq
      def seconds(name: String): Double = history.map(_.path(name).asDouble).sum
      val parts = steps.sum / 1e3 + seconds("seconds_evaluation") + seconds("seconds_checkpoint")
      assert(parts <= seconds("seconds") + 1e-6, s"$parts of ${seconds("seconds")} s")
      assert(history.forall(_.path("seconds_evaluation").asDouble > 0) && seconds("seconds_checkpoint") > 0)
      assert(summary.path("final").path("seconds_prepare").asDouble > 0)
      // Every step of every rank; what servers do counts for no step.
      val ranks = told.path("ranks").elements.asScala.map(_.path("phases_ms").elements.asScala.map(numbers).toSeq).toSeq
      assert(ranks.size == 3 + more.size / 3 && told.path("every").asInt == 1)
      for (step <- steps.indices) {
        val lengths = ranks.take(3).map(_.map(_(step)).sum)
        assert(math.abs(lengths.sum / 3 - steps(step)) < 0.002, s"step $step: $lengths")
      }
      assert(numbers(told.path("last")).forall(rank => rank >= 0 && rank < 3) && told.path("last").size == steps.size)
      val caused = summary.path("ranks").elements.asScala.map(_.path("made_others_wait_s").asDouble).sum
      assert(math.abs(caused - numbers(told.path("others_waited_ms")).sum / 1e3) < 1e-4)
    }
  }

  test("lossy codecs round nothing where all ranks share a process") {
    assert(run("codec" -> "bf16").weights === run().weights)
  }

  test("a checkpoint every so many seconds; a run that goes on from one ends with the same bits") {
    val folder = Files.createTempDirectory("checkpoints")
    val long = Seq("epochs" -> "1000000", "max_steps" -> "4000")
    val timed = Seq(
      "checkpoint.dir" -> folder.toUri.toString,
      "checkpoint.every" -> "1000000",
      "checkpoint.every_seconds" -> "0.2",
      "checkpoint.keep" -> "1000"
    )
    val start = System.nanoTime()
    val result = run(long ++ timed: _*)
    val passed = (System.nanoTime() - start) / 1e9 // with what lies between the steps, which the clock sees as well
    val store = new CheckpointStore(folder.toUri.toString, new Configuration())
    val made = store.complete.reverse
    val seconds = file(result, "steps.json").elements.asScala.map(_.asDouble).sum / 1000
    assert(made.last == 4000 && made.size >= 3, s"$made in $seconds s")
    assert(made.size <= passed / 0.2 + 2, s"$made in $passed s")
    assert(Files.list(folder).iterator.asScala.size == made.size, "checkpoints of a part of the ranks")
    made.drop(made.size / 2).foreach(step => delete(folder.resolve(f"step-$step%012d")))
    val resumed = run(long :+ ("resume" -> folder.toUri.toString): _*)
    assert(resumed.weights === result.weights && resumed.weights === run(long: _*).weights)
    assert(file(resumed, "steps.json").size == 4000 - made(made.size / 2 - 1))
  }

  test("a folder that holds another run's checkpoints is refused: a retry would go on from those") {
    val folder = Files.createTempDirectory("checkpoints").toUri.toString
    val set = Seq("checkpoint.dir" -> folder, "max_steps" -> "5")
    run(set: _*)
    val message = intercept[sparkdlbench.common.ConfigurationException](run(set: _*)).getMessage
    assert(message.contains("holds checkpoints of another run (the newest after step 5)"), message)
    // By its path, as a configuration may name it.
    val path = java.nio.file.Paths.get(java.net.URI.create(folder)).toString
    run("checkpoint.dir" -> path, "resume" -> folder, "max_steps" -> "9")
    assert(new CheckpointStore(folder, new Configuration()).newest.get.step == 9)
  }

  test("a checkpoint goes on with the rows that come next, or not at all") {
    val folder = Files.createTempDirectory("checkpoints").toUri.toString
    run("checkpoint.dir" -> folder, "max_steps" -> "5")
    val others = Seq(
      "batch" -> "60" -> "batch 60, seed 0",
      "seed" -> "7" -> "batch 50, seed 7",
      "data.share" -> "0.5" -> "batch 50, seed 0, 719 training rows"
    )
    for ((other, told) <- others) {
      val message = intercept[sparkdlbench.common.ConfigurationException](run(other, "resume" -> folder)).getMessage
      assert(message.contains("batch 50, seed 0, 1438 training rows") && message.contains(told), message)
    }
    // As many rows for each of other workers are another batch.
    val each = Seq("batch_per_worker" -> "25", "workers" -> "2", "resume" -> folder, "max_steps" -> "9")
    run(each: _*)
    intercept[sparkdlbench.common.ConfigurationException](run(each :+ ("workers" -> "3"): _*))
  }

  private def delete(folder: Path): Unit = {
    Files.list(folder).iterator.asScala.foreach(Files.delete)
    Files.delete(folder)
  }

  test("what codecs left out goes on where ranks can send it again, with another number of ranks too") {
    val folder = Files.createTempDirectory("checkpoints")
    val lossy = Seq("codec" -> "threshold", "in_memory_first" -> "off")
    run(lossy ++ Seq("checkpoint.dir" -> folder.toUri.toString, "max_steps" -> "20"): _*)
    val store = new CheckpointStore(folder.toUri.toString, new Configuration())
    val left = store.newest.get.parts.flatMap(_.ranges).filter(_.name.startsWith("residual"))
    assert(left.size == 3 && left.exists(_.values.exists(_ != 0f)))
    assert(store.newest.get.groups.alone)
    val again = Files.createTempDirectory("checkpoints")
    val more = Seq("resume" -> folder.toUri.toString, "checkpoint.dir" -> again.toUri.toString, "workers" -> "4")
    run(lossy ++ more ++ Seq("max_steps" -> "21"): _*)
    val after = new CheckpointStore(again.toUri.toString, new Configuration()).newest.get
    assert(after.step == 21 && after.parts.size == 4)
  }
}
