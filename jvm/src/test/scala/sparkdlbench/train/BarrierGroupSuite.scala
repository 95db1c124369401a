package sparkdlbench.train

import org.apache.spark.BarrierTaskContext
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.transport.LocalCluster

import java.io.IOException
import java.nio.file.Files
import java.util.concurrent.CountDownLatch
import scala.util.Try

class BarrierGroupSuite extends AnyFunSuite {
  test("a wait ends with what it waited for, with its failure, or with its time") {
    assert(BoundedWait.of("met", 20000)(7).map(_.get).contains(7))
    val failed = BoundedWait.of("failed", 20000)(throw new IOException("the link is down"))
    assert(failed.get.failed.get.getMessage == "the link is down")
    val never = new CountDownLatch(1)
    val start = System.nanoTime()
    try assert(BoundedWait.of("late", 200)(never.await()).isEmpty)
    finally never.countDown()
    assert(System.nanoTime() - start < 15e9)
  }

  test(
    "ranks that do not meet fail after start_timeout in a session without the plugin, whose driver hears of no rank"
  ) {
    LocalCluster.run(2, 1, "spark.stage.maxConsecutiveAttempts" -> "1") { sc =>
      val results = Files.createTempDirectory("results").toString
      val settings = Map("workers" -> "2", "batch" -> "50", "model.hidden" -> "32", "transport" -> "tcp")
      val patient = TrainingRun.prepare(sc, settings + ("results" -> results)).setup
      val met = sc
        .parallelize(0 until 2, 2)
        .barrier()
        .mapPartitions { _ =>
          val group = new BarrierGroup(patient, BarrierTaskContext.get())
          Iterator(group.allGather(s"rank ${group.rank}").mkString(" and "))
        }
        .collect()
      assert(met.toSeq == Seq.fill(2)("rank 0 and rank 1"))
      val hasty = patient.copy(settings = patient.settings.updated(Checkpointing.startSeconds, "1"))
      val failed = Try(
        sc.parallelize(0 until 2, 2)
          .barrier()
          .mapPartitions { _ =>
            val group = new BarrierGroup(hasty, BarrierTaskContext.get())
            if (group.rank == 1) while (!group.isKilled) Thread.sleep(20)
            Iterator(group.allGather("here").size)
          }
          .collect()
      )
      val message = Failures.reason(failed.failed.get)
      assert(message.startsWith("Rank 0 on host 127.0.0.1, executor "), message)
      assert(message.contains("1 s after it began (start_timeout, meeting 1)"), message)
    }
  }
}
