package sparkdlbench.train

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.RunFailedException
import sparkdlbench.rank.Placement
import sparkdlbench.transport.LocalCluster

import java.net.URI
import java.net.http.HttpResponse.BodyHandlers
import java.net.http.{HttpClient, HttpRequest}
import java.nio.file.Files
import java.time.Duration

/** The tab in Spark's own pages, as a browser asks for it. */
class TrainingTabSuite extends AnyFunSuite {

  test("runs of both shapes: progress while they train, then phases by rank, channels, and why one failed") {
    val results = Files.createTempDirectory("training-tab").toString
    val pages = LocalCluster.prepared ++ Seq("spark.ui.enabled" -> "true", "spark.ui.port" -> "0")
    LocalCluster.run(2, 1, pages: _*) { sc =>
      val client = HttpClient.newHttpClient()
      val address = URI.create(s"http://127.0.0.1:${URI.create(sc.uiWebUrl.get).getPort}/sparkdl/")
      def page(): String = {
        val request = HttpRequest.newBuilder(address).timeout(Duration.ofSeconds(20)).build()
        val answer = client.send(request, BodyHandlers.ofString())
        assert(answer.statusCode == 200, answer.body)
        answer.body
      }
      assert(page().contains("No training has been started"))
      val small = Map(
        "data.source" -> "synthetic",
        "data.shape" -> "64",
        "data.rows" -> "2000",
        "model.hidden" -> "64",
        "workers" -> "2",
        "batch" -> "50",
        "host_local" -> "off",
        "results" -> results
      )
      val long = TrainingRun.prepare(sc, small ++ Map("transport" -> "block-stream", "epochs" -> "1000000"))
      val training = new Thread(() =>
        try { long.train(); () }
        catch { case _: RunFailedException => () }
      )
      training.start()
      val end = System.nanoTime() + 60000000000L
      var seen = ""
      // Either rank may tell first.
      while ((0 to 1).exists(rank => !seen.contains(s"rank $rank on ")) && System.nanoTime() < end) {
        Thread.sleep(200)
        seen = page()
      }
      assert(seen.contains("running") && seen.contains("rank 0 on 127.0.0.1, executor"), seen)
      assert(seen.contains("rank 1 on 127.0.0.1, executor") && seen.contains("<td>block-stream</td>"), seen)
      assert(seen.contains("transport block-stream") && seen.contains("<th>compute</th>"), seen)
      long.cancel()
      training.join(60000)
      assert(page().contains("the user cancelled the run"))
      TrainingRun.prepare(sc, small ++ Map("transport" -> "block-manager", "epochs" -> "1", "max_steps" -> "5")).train()
      val both = page()
      assert(both.contains("<td>block-manager</td>") && both.contains("<td>block-stream</td>"))
      assert(
        both.indexOf("transport block-manager") < both.indexOf("transport block-stream"),
        "the newest stands first"
      )
      val newest = both.substring(0, both.indexOf("transport block-stream"))
      assert((0 to 1).forall(rank => newest.contains(s"rank $rank on 127.0.0.1, executor ")), newest)
    }
  }

  test("a rank that works longer than the others is the straggler; equal ones are none") {
    def rank(index: Int, compute: Long, wait: Long) = {
      val nanos = new Array[Long](sparkdlbench.metrics.Phase.names.size)
      nanos(sparkdlbench.metrics.Phase.Compute) = compute * 10
      nanos(sparkdlbench.metrics.Phase.Wait) = wait * 10
      RankStatus(index, "h", index.toString, 10, nanos, Map("tcp" -> 5L))
    }
    def live(ranks: RankStatus*) = {
      val run = new LiveRun("app-1", null, new RunProgress)
      ranks.foreach(run.told)
      run
    }
    val uneven = live(rank(0, 1000000, 2000000), rank(1, 3000000, 0), rank(2, 1000000, 2000000))
    assert(uneven.straggler.map(_.rank).contains(1))
    assert(uneven.bytes == Seq("tcp" -> 15L))
    assert(math.abs(uneven.phasesMillis.sum - 3) < 1e-9)
    assert(live(rank(0, 1000000, 0), rank(1, 1000000, 0)).straggler.isEmpty)
    assert(live(rank(0, 1000000, 0)).straggler.isEmpty)
  }

  test("a job per step: each rank's phases, who is waited for, and the bytes so far") {
    import sparkdlbench.metrics.{Phase, StepPhases}
    def nanos(compute: Long, wait: Long) = {
      val phases = new Array[Long](Phase.names.size)
      phases(Phase.Compute) = compute
      phases(Phase.Wait) = wait
      phases(Phase.Scheduler) = 5000000
      phases
    }
    val run = new LiveRun("app-1", null, new RunProgress)
    run.placed(Seq(Placement(0, "a", "0"), Placement(1, "b", "1")))
    assert(run.rankStatuses.map(_.host) == Seq("a", "b") && run.straggler.isEmpty)
    val ranks = IndexedSeq(nanos(1000000, 2000000), nanos(3000000, 0))
    for (_ <- 1 to 3) run.stepDone(StepPhases(nanos(3000000, 0), ranks))
    assert(run.rankStatuses.map(_.steps) == Seq(3, 3) && math.abs(run.phasesMillis.sum - 8) < 1e-9)
    assert(run.straggler.map(_.rank).contains(1) && math.abs(run.straggler.get.ownMillis - 3) < 1e-9)
    run.sent(Map("shuffle" -> 7L))
    assert(run.bytes == Seq("shuffle" -> 7L))
  }
}
