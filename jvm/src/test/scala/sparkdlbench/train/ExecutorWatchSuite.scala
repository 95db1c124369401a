package sparkdlbench.train

import org.apache.spark.sparkdlbench.{SparkFacts, SparkTestSupport}
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.RunFailedException
import sparkdlbench.transport.LocalCluster

import java.nio.file.Files
import java.util.concurrent.atomic.AtomicInteger
import scala.util.Try

class ExecutorWatchSuite extends AnyFunSuite {
  private def eventually(what: String)(done: => Boolean): Unit = {
    val end = System.nanoTime() + 60000000000L
    while (!done && System.nanoTime() < end) Thread.sleep(20)
    assert(done, what)
  }

  test(
    "jobs are ended, again and again, where there has been no slot for too long; not where one comes back, or nobody can tell"
  ) {
    val (looks, ends) = (new AtomicInteger, new AtomicInteger)
    @volatile var slots: () => Int = () => 1
    def look(): Int = { looks.incrementAndGet(); slots() }
    val watch = new ExecutorWatch("test", 2, () => look(), () => ends.incrementAndGet(): Unit)
    def looksMore(more: Int): Unit = { val now = looks.get; eventually("it looks")(looks.get >= now + more) }
    try {
      slots = () => throw new IllegalStateException("the session is being stopped")
      looksMore(6)
      slots = () => 0
      looksMore(1)
      slots = () => 1
      looksMore(6)
      assert(watch.complaint.isEmpty && ends.get == 0)
      slots = () => 0
      eventually("it ends jobs")(ends.get >= 2)
      assert(watch.complaint.get.contains("not a single executor for 2 s (recovery.replacement_wait)"))
    } finally watch.close()
  }

  test("a job of a group whose executors are lost, and none returns, ends and says so") {
    LocalCluster.run(2, 1) { sc =>
      val results = Files.createTempDirectory("results").toString
      val settings = Map("workers" -> "2", "batch" -> "50", "model.hidden" -> "32", "transport" -> "block-manager")
      val wait = Map("recovery.replacement_wait" -> "8", "results" -> results)
      val setup = TrainingRun.prepare(sc, settings ++ wait).setup
      sc.setJobGroup(setup.runId, "a training", interruptOnCancel = false)
      val group = new RankGroup(sc, setup)
      assert(group.run(_ => 1) == Seq(1, 1))
      SparkTestSupport.killExecutors(sc)
      eventually("all executors are gone")(SparkFacts.slots(sc) == 0)
      val told = group.explained(Try(group.run(_ => 1)).failed.get)
      assert(told.isInstanceOf[RunFailedException] && told.getMessage.contains("not a single executor for 8 s"), told)
      group.close()
    }
  }
}
