package sparkdlbench.train

import org.apache.spark.scheduler.SparkListenerExecutorRemoved
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.LocalRuns
import sparkdlbench.common.Json

import java.nio.file.{Files, Paths}
import scala.jdk.CollectionConverters._

class StageNoticesSuite extends AnyFunSuite with LocalRuns {
  override protected def common: Map[String, String] = Map("transport" -> "block-stream", "workers" -> "2")
  private def status(step: Long) =
    StepReport("run", 0, step, 1.0, 1.0, RankStatus(0, "host", "1", step, Array.empty, Map.empty))

  test("an executor that stops is told of with Spark's reason") {
    val notices = new StageNotices("run")
    notices.onExecutorRemoved(SparkListenerExecutorRemoved(0, "1", "Command exited with code 137\nmore"))
    val Seq(told) = notices.take(): @unchecked
    assert(told.line == "executor stopped executor 1: Command exited with code 137")
    assert(notices.take().isEmpty)
  }

  test("ranks that tell of no step are told of once a silence, with who sends no heartbeat") {
    var seconds = 0L
    val watch = new SilenceWatch(() => Seq("executor 1 sent none"), 60, () => seconds * 1000000000L)
    assert(watch.look().isEmpty) // nobody has begun
    watch.receive(status(5))
    seconds = 14
    assert(watch.look().isEmpty)
    seconds = 16
    val told = watch.look().get
    assert(told.reason.contains("no step has ended for 16 s, since step 5; executor 1 sent none"))
    assert(told.reason.contains("gives up after 60 s (timeout)"))
    seconds = 30
    assert(watch.look().isEmpty, "told twice")
    watch.receive(status(6)) // such steps are what this net takes
    seconds = 60
    assert(watch.look().isEmpty)
    seconds = 200
    assert(watch.look().nonEmpty)
    watch.receive(status(7))
    watch.receive(DoingReport("run", 0, RunProgress.Evaluating))
    seconds = 9000
    assert(watch.look().isEmpty, "an evaluation has no steps")
  }

  test("a run that goes on well after a lost attempt says what befell it, in events, summary and progress") {
    val run = prepared()
    val folder = Files.createTempDirectory("notices")
    val live = LiveRuns.open("app", run.setup, new RunProgress)
    val files = sparkdlbench.results.RunFolder.create(folder.toString, "told")
    val recorder = new sparkdlbench.train.Recorder(run.setup, files, live, System.nanoTime())
    recorder.noticed(Notice("rank_failed", "killed", Some(1), Some("host-2"), Some("3")))
    assert(live.progress.noticesAfter(0) == Seq("rank failed rank 1 executor 3 on host-2: killed"))
    val event = Json.read(Files.readAllLines(Paths.get(files.path.toString, "events.jsonl")).asScala.last)
    assert(event.path("key").asText == "rank_failed")
    val kept = Json.read(Json.line(recorder.summary("success", Map.empty, None))).path("notices").path(0)
    for (at <- Seq(event.path("metadata"), kept)) {
      assert(at.path("rank").asInt == 1)
      assert(at.path("host").asText == "host-2")
      assert(at.path("executor").asText == "3")
      assert(at.path("reason").asText == "killed")
    }
    files.close()
  }
}
