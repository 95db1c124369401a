package sparkdlbench.train

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.sparkdlbench.SparkTestSupport
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.{ConfigurationException, Json, RunFailedException}
import sparkdlbench.results.EventFile
import sparkdlbench.LocalRuns

import java.nio.file.{Files, Path, Paths}
import java.util.concurrent.atomic.AtomicBoolean
import scala.jdk.CollectionConverters._

/** Whole runs through Spark jobs in one JVM; the tests on real executors are the Python ones and `PushSuite`. */
class TrainingSuite extends AnyFunSuite with LocalRuns {

  override protected def common: Map[String, String] = Map(
    "data.source" -> "digits",
    "transport" -> "block-manager",
    "model.name" -> "mlp",
    "epochs" -> "2",
    "optimizer.learning_rate" -> "0.1"
  )

  private def blocksLeft: Int =
    org.apache.spark.SparkEnv.get.blockManager.getMatchingBlockIds(_.name.contains("sparkdl:")).size

  /** Whoever waits for the summary finds all else, what was sampled too. */
  private def assertSummaryLast(folder: Path): Unit = {
    val files = Files.list(folder)
    val written =
      try files.iterator.asScala.map(file => file.getFileName.toString -> Files.getLastModifiedTime(file)).toMap
      finally files.close()
    assert(written.contains("resources.json"))
    assert(written.forall { case (_, at) => at.compareTo(written("summary.json")) <= 0 }, written)
  }

  test("a run trains, evaluates and leaves its files") {
    val result = run("workers" -> "2", "epochs" -> "8")
    val summary = Json.read(result.summary)
    assert(summary.path("status").asText === "success")
    assert(summary.path("final").path("test_accuracy").asDouble > 0.9)
    val folder = Paths.get(result.folder)
    Seq("run.json", "events.jsonl", "steps.json", "phases.json", "page.html").foreach(file =>
      assert(Files.exists(folder.resolve(file)), file)
    )
    assertSummaryLast(folder)
    val events = Files.readAllLines(folder.resolve("events.jsonl")).asScala.map(Json.read(_).path("key").asText)
    val engine = Json.read(Files.readString(folder.resolve("run.json"))).path("engine")
    assert(engine.path("blas").asText.nonEmpty)
    if (engine.path("blas").asText == "mkl") assert(engine.path("mkl.cbwr").asText.nonEmpty)
    assert(events.count(_ == "epoch_stop") === 8 && events.head === "run_start" && events.last === "run_stop")
    assert(blocksLeft === 0)
  }

  test("TensorBoard gets the losses, the metrics and the seconds of each epoch") {
    val folder = Files.createTempDirectory("tensorboard")
    val result = run("workers" -> "2", "tensorboard.dir" -> folder.toString)
    val files = Files.list(folder.resolve(Paths.get(result.folder).getFileName)).iterator.asScala.toSeq
    assert(files.size === 1)
    val found = EventFile.scalars(files.head)
    val history = Json.read(result.summary).path("history").elements.asScala.toSeq
    def told(tag: String): Seq[(Int, Float)] = found.collect { case (`tag`, step, value) => step -> value }
    def recorded(field: String): Seq[(Int, Float)] =
      history.map(epoch => epoch.path("epoch").asInt -> epoch.path(field).asDouble.toFloat)
    assert(history.size === 2 && found.size === 14)
    assert(told("f1_macro/test") === recorded("test_f1_macro"))
    assert(told("loss/train") === recorded("train_loss"))
    assert(told("loss/test") === recorded("test_loss"))
    assert(told("accuracy/test") === recorded("test_accuracy"))
    val seconds = told("seconds").map(_._2)
    assert(seconds.size === 2 && seconds.head > 0 && seconds.head < seconds.last)
  }

  test("the phases add up to the step's time") {
    val result = run("workers" -> "2")
    val phases = Json.read(result.summary).path("phases_ms")
    val steps =
      Json.read(Files.readString(Paths.get(result.folder, "steps.json"))).elements.asScala.map(_.asDouble).toSeq
    assert(steps.size === 58)
    assert(math.abs(phases.elements.asScala.map(_.asDouble).sum / (steps.sum / steps.size) - 1) < 0.02)
    Seq("compute", "send", "wait", "scheduler").foreach(phase => assert(phases.path(phase).asDouble > 0, phase))
  }

  test("each rank's phases add up to the step's time, with its wait for the slowest") {
    for (how <- Seq(Nil, Seq("transport" -> "shuffle"), Seq("transport" -> "shuffle", "topology" -> "tree"))) {
      val result = run(how ++ Seq("workers" -> "2", "max_steps" -> "20"): _*)
      val summary = Json.read(result.summary)
      def sum(node: JsonNode): Double = node.elements.asScala.map(_.asDouble).sum
      val (ranks, step) = (summary.path("ranks").elements.asScala.toSeq, sum(summary.path("phases_ms")))
      assert(ranks.map(_.path("rank").asInt) === Seq(0, 1))
      for (rank <- ranks) {
        assert(math.abs(sum(rank.path("phases_ms")) / step - 1) < 1e-6)
        assert(rank.path("phases_ms").path("compute").asDouble > 0 && rank.path("made_others_wait_s").asDouble >= 0)
      }
      val told = Json.read(Files.readString(Paths.get(result.folder, "phases.json")))
      assert(told.path("ranks").size === 2 && told.path("last").size === 20)
      val history = summary.path("history").elements.asScala.toSeq
      assert(history.map(_.path("seconds").asDouble).sum >= step * 20 / 1e3)
      assert(history.last.path("seconds_evaluation").asDouble > 0)
    }
  }

  test("N workers give the loss curve of one, for a batch that N does not divide") {
    val one = run("workers" -> "1")
    for (workers <- 2 to 4) {
      val many = run("workers" -> workers.toString)
      losses(one).zip(losses(many)).foreach { case (a, b) => assert(math.abs(a - b) / a < 1e-4, s"$workers workers") }
      val apart = one.weights.zip(many.weights).map { case (a, b) => math.abs(a - b) }.max
      assert(apart < 1e-4, s"$workers workers: weights differ by $apart")
    }
  }

  test("on half of the rows an epoch has half the steps, with the same rows for any number of workers") {
    val (one, two) = (run("workers" -> "1", "data.share" -> "0.5"), run("workers" -> "2", "data.share" -> "0.5"))
    for (result <- Seq(one, two)) {
      def file(name: String) = Json.read(Files.readString(Paths.get(result.folder, name)))
      val data = file("run.json").path("data")
      assert(data.path("train_rows").asInt === 719 && data.path("test_rows").asInt === 359)
      assert(file("steps.json").size === 2 * 15)
    }
    losses(one).zip(losses(two)).foreach { case (a, b) => assert(math.abs(a - b) / a < 1e-4) }
    val apart = one.weights.zip(two.weights).map { case (a, b) => math.abs(a - b) }.max
    assert(apart < 1e-4, s"weights differ by $apart")
  }

  test("the same seed twice gives the same bits, another seed others") {
    val first = run("workers" -> "3", "seed" -> "7", "epochs" -> "1").weights
    assert(first === run("workers" -> "3", "seed" -> "7", "epochs" -> "1").weights)
    assert(first !== run("workers" -> "3", "seed" -> "8", "epochs" -> "1").weights)
  }

  test("slices over the limit travel cut up and change nothing") {
    val whole = run("workers" -> "2", "epochs" -> "1").weights
    assert(whole === run("workers" -> "2", "epochs" -> "1", "slice_limit" -> "100").weights)
  }

  test("bf16 trains as well, with half the bytes") {
    val exact = Json.read(run("workers" -> "1", "epochs" -> "8").summary)
    val rounded = run("workers" -> "2", "epochs" -> "8", "codec" -> "bf16")
    val gap = exact
      .path("final")
      .path("test_accuracy")
      .asDouble - Json.read(rounded.summary).path("final").path("test_accuracy").asDouble
    assert(gap < 0.02)
    assert(blocksLeft === 0)
  }

  test("bytes counted are the formula's") {
    val summary = Json.read(run("workers" -> "4", "epochs" -> "1").summary)
    val steps = summary.path("final").path("steps").asLong
    val parameters = 64 * 32 + 32 + 32 * 10 + 10
    // All ranks together send 2(N-1) · S a step; here they all live in one executor.
    assert(summary.path("bytes").path("in-process").asLong === steps * 2 * 3 * parameters * 4)
  }

  test("what a user can correct is found before any job") {
    def complaint(settings: (String, String)*): String = {
      var jobs = 0
      val listener = new org.apache.spark.scheduler.SparkListener {
        override def onJobStart(start: org.apache.spark.scheduler.SparkListenerJobStart): Unit = jobs += 1
      }
      SparkTestSupport.awaitEvents(sc) // of the runs before
      sc.addSparkListener(listener)
      val message =
        try intercept[ConfigurationException](run(settings: _*)).getMessage
        finally { SparkTestSupport.awaitEvents(sc); sc.removeSparkListener(listener) }
      assert(jobs === 0)
      message
    }
    assert(complaint("workers" -> "9", "batch" -> "90").contains("4 task slots"))
    assert(complaint("workers" -> "4", "batch" -> "3").contains("batch = 3"))
    assert(complaint("transport" -> "block-manger").contains("Did you mean 'block-manager'?"))
    assert(complaint("topology" -> "ring").contains("sliced"))
    assert(complaint("data.source" -> "idx", "data.path" -> "/no/such/folder").contains("/no/such/folder"))
  }

  test("a run that fails leaves a summary that says so") {
    val cancelled = prepared("optimizer.learning_rate" -> "0.1")
    cancelled.cancel()
    intercept[RunFailedException](cancelled.train())
    val last = Files.list(results).iterator.asScala.toSeq.maxBy(_.toString)
    val summary = Json.read(Files.readString(last.resolve("summary.json")))
    assert(summary.path("status").asText === "cancelled" && summary.path("error").asText.nonEmpty)
    assertSummaryLast(last)
  }

  test("a slice that is gone ends the run with who misses it and who should hold it: rank, host and executor") {
    val robbed = prepared("transport" -> "block-manager", "workers" -> "2", "epochs" -> "50")
    val blocks = org.apache.spark.SparkEnv.get.blockManager
    val over = new AtomicBoolean
    val thief = new Thread(() =>
      while (!over.get) {
        blocks.getMatchingBlockIds(_.name.contains("sparkdl:")).foreach(id => blocks.removeBlock(id))
        Thread.sleep(1)
      }
    )
    thief.start()
    val message =
      try intercept[RunFailedException](robbed.train()).getMessage
      finally { over.set(true); thief.join() }
    val told =
      """(?s).*Rank \d on \S+ \(executor driver\) (did not find|could not fetch) the (gradient|weights) slice """ +
        """sparkdl:\S+ of rank \d, which executor driver on \S+ should hold\. .*"""
    assert(message.matches(told), message)
  }
}
