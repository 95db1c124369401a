package sparkdlbench.train

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.LocalRuns
import sparkdlbench.config.RunKeys
import sparkdlbench.metrics.{Phase, PhaseLog, PhaseRecord}
import sparkdlbench.results.RunFolder

class RecorderSuite extends AnyFunSuite with LocalRuns {
  override protected def common: Map[String, String] = Map("transport" -> "block-stream", "workers" -> "3")

  private def withRecorder(body: (RunSetup, LiveRun, Recorder) => Unit): Unit = {
    val setup = prepared().setup
    val live = LiveRuns.open("app", setup, new RunProgress)
    val folder = RunFolder.create(results.toString, "recorder")
    try body(setup, live, new Recorder(setup, folder, live, System.nanoTime()))
    finally folder.close()
  }

  /** A rank that computes as long as said, step by step, and waits a millisecond in each. */
  private def rank(computeMillis: Long*): (Array[Long], PhaseRecord) = {
    val log = new PhaseLog(64)
    val lengths = computeMillis.map { millis =>
      val nanos = new Array[Long](Phase.names.size)
      nanos(Phase.Compute) = millis * 1000000
      nanos(Phase.Wait) = 1000000
      log.add(nanos)
    }
    (lengths.toArray, log.record)
  }

  test("a step is the mean of the ranks that compute: what shifts from one to the next counts once") {
    withRecorder { (_, _, recorder) =>
      val ranks = Seq(rank(1, 3, 1, 3), rank(3, 1, 3, 1), rank(2, 2, 2, 2))
      val server = rank(100, 100, 100, 100)
      val all = ranks :+ server
      recorder.steps(all.map(_._1), all.map(_._2), all.map(_ => ("h", "0")))
      assert(recorder.stepMillis == Seq(3.0, 3.0, 3.0, 3.0))
      assert(recorder.phasesMillis("compute") == 2.0 && recorder.phasesMillis("wait") == 1.0)
      assert(recorder.summary("success", Map.empty, None)("ranks").asInstanceOf[Seq[_]].size == 4)
    }
  }

  test("after a loss the summary names the workers that were left, and those at the start") {
    withRecorder { (setup, live, recorder) =>
      live.told(RankStatus(2, "h", "2", 5, new Array[Long](Phase.names.size), Map.empty))
      val fewer = setup.copy(submission = 1, settings = setup.settings.updated(RunKeys.workers, "2"))
      recorder.resubmitted("an executor was lost", fewer.copy(begunAt = 7))
      assert(live.workers == 2 && live.rankStatuses.isEmpty)
      val line = "workers changed from 3 to 2 after step 7: an executor was lost"
      assert(live.workerChanges == Seq(line) && live.progress.noticesAfter(0).last == line)
      recorder.goesOn(fewer, 8, "") // the same number: nothing to tell
      val Seq(change) = recorder.workerChanges: @unchecked
      assert(change("from") == 3 && change("to") == 2 && change("step") == 7L)
      val ranks = Seq(rank(1, 1), rank(3, 3))
      recorder.steps(ranks.map(_._1), ranks.map(_._2), Seq(("h", "0"), ("h", "1")))
      val summary = recorder.summary("success", Map.empty, None)
      assert(
        summary("workers") == 2 && summary("workers_at_start") == 3 && summary("worker_changes") == Seq(
          change
        ) && summary("servers") == 0
      )
      assert(recorder.stepMillis == Seq(3.0, 3.0))
    }
  }

  test("what comes before the first step is known where epochs are told late, and where one is lost between them") {
    withRecorder { (_, _, recorder) =>
      assert(recorder.secondsPrepared.isEmpty)
      Thread.sleep(100)
      // Both at once, as in a session without the plugin: they took 60 ms of the 100.
      (0 to 1).foreach(epoch => recorder.epochStopped(epoch, 1.0, EpochSeconds(0.03, 0.01, 0.0)))
      val prepared = recorder.secondsPrepared.get
      assert(prepared >= 0.035 && prepared < 10, prepared)
      Thread.sleep(200)
      recorder.epochStopped(2, 1.0, EpochSeconds(0.01, 0.0, 0.0))
      assert(recorder.secondsPrepared.get < prepared + 0.05)
    }
  }
}
