package sparkdlbench.train

import org.apache.spark.rpc.netty.DriverMessages
import org.apache.spark.{BarrierTaskContext, SparkContext}
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.TakesLong
import sparkdlbench.common.{BoundedWait, Failures, RunFailedException}
import sparkdlbench.config.CheckpointKeys
import sparkdlbench.transport.LocalCluster

import java.io.IOException
import java.nio.file.Files
import java.util.concurrent.CountDownLatch
import scala.reflect.ClassTag
import scala.util.Try

class BarrierGroupSuite extends AnyFunSuite {
  import BarrierGroupSuite._

  test("a wait ends with what it waited for, with its failure, with its time, or with its task") {
    assert(BoundedWait.of("met", 20000, isKilled = false)(7).map(_.get).contains(7))
    val failed = BoundedWait.of("failed", 20000, isKilled = false)(throw new IOException("the link is down"))
    assert(failed.get.failed.get.getMessage == "the link is down")
    val never = new CountDownLatch(1)
    val start = System.nanoTime()
    try {
      assert(BoundedWait.of("late", 200, isKilled = false)(never.await()).isEmpty)
      assert(BoundedWait.of("killed", 60000, isKilled = true)(never.await()).isEmpty)
    } finally never.countDown()
    assert(System.nanoTime() - start < 15e9)
  }

  test(
    "ranks that do not meet fail after start_timeout in a session without the plugin, whose driver hears of no rank"
  ) {
    LocalCluster.run(2, 1, "spark.stage.maxConsecutiveAttempts" -> "1") { sc =>
      val patient = setup(sc)
      val met = onRanks(sc, patient)(group => group.allGather(s"rank ${group.rank}").mkString(" and "))
      assert(met == Seq.fill(2)("rank 0 and rank 1"))
      checkLate(sc, patient)
    }
  }

  test("with the plugin ranks of several executors meet over it, sooner than Spark looks") {
    LocalCluster.run(2, 1, LocalCluster.prepared: _*) { sc =>
      val run = setup(sc)
      RankMeetings.open(run.runId, attempt = 0)
      try {
        DriverMessages.listen()
        val before = DriverMessages.soFar
        val met = onRanks(sc, run) { group =>
          val first = group.allGather(s"rank ${group.rank}").mkString(" and ")
          val start = System.nanoTime()
          (1 to 10).foreach(number => group.allGather(s"$number"))
          (first, (System.nanoTime() - start) / 1e9)
        }
        assert(met.map(_._1) == Seq.fill(2)("rank 0 and rank 1"))
        assert(met.forall(_._2 < 5), "by Spark each meeting takes a second")
        val texts = DriverMessages.soFar.collect {
          case (kind, count) if kind.endsWith("PluginMessage(MeetingText)") => count - before.getOrElse(kind, 0L)
        }
        assert(texts.sum == 22, "two ranks met 11 times")
        assert(RankMeetings.meetings(run.runId) == 0)
      } finally RankMeetings.close(run.runId)
    }
  }

  test("with the plugin ranks that are late or killed leave the meeting and give their slots back", TakesLong) {
    LocalCluster.run(2, 1, LocalCluster.prepared :+ ("spark.stage.maxConsecutiveAttempts" -> "1"): _*) { sc =>
      val run = setup(sc)
      RankMeetings.open(run.runId, attempt = 0)
      try {
        checkLate(sc, run)
        // Rank 1 would wait for half an hour (start_timeout).
        val gone = Try(onRanks(sc, run.copy(submission = 1)) { group =>
          if (group.rank == 0) {
            Thread.sleep(1000)
            throw new RunFailedException("rank 0 is gone")
          }
          group.allGather("here").size
        })
        assert(Failures.reason(gone.failed.get) == "rank 0 is gone")
        val start = System.nanoTime()
        val after = onRanks(sc, run.copy(submission = 2))(group => group.allGather(s"rank ${group.rank}").size)
        assert(after == Seq(2, 2))
        assert(System.nanoTime() - start < 30e9)
        assert(RankMeetings.meetings(run.runId) == 0)
      } finally RankMeetings.close(run.runId)
    }
  }

  private def setup(sc: SparkContext): RunSetup = {
    val results = Files.createTempDirectory("results").toString
    val settings = Map("workers" -> "2", "batch" -> "50", "model.hidden" -> "32", "transport" -> "tcp")
    TrainingRun.prepare(sc, settings + ("results" -> results)).setup
  }

  /** Rank 1 comes when it is too late for rank 0. */
  private def checkLate(sc: SparkContext, setup: RunSetup): Unit = {
    val hasty = setup.copy(settings = setup.settings.updated(CheckpointKeys.startSeconds, "1"))
    val failed = Try(onRanks(sc, hasty) { group =>
      if (group.rank == 1) while (!group.isKilled) Thread.sleep(20)
      group.allGather("here").size
    })
    val message = Failures.reason(failed.failed.get)
    assert(message.startsWith("Rank 0 on host 127.0.0.1, executor "), message)
    assert(message.contains("1 s after it began (start_timeout, meeting 1)"), message)
  }
}

private object BarrierGroupSuite {

  /** What each of two ranks brings back. */
  def onRanks[T: ClassTag](sc: SparkContext, setup: RunSetup)(body: BarrierGroup => T): Seq[T] =
    sc.parallelize(0 until 2, 2)
      .barrier()
      .mapPartitions(_ => Iterator(body(new BarrierGroup(setup, BarrierTaskContext.get()))))
      .collect()
      .toSeq
}
