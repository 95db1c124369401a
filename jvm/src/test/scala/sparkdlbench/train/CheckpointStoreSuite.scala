package sparkdlbench.train

import org.apache.hadoop.conf.Configuration
import org.scalatest.funsuite.AnyFunSuite

import java.nio.file.{Files, Path}
import java.util.concurrent.{BrokenBarrierException, CyclicBarrier, Executors, TimeUnit}
import scala.util.Try

class CheckpointStoreSuite extends AnyFunSuite {
  private val ranks = 4

  private def part(step: Long, rank: Int): RankSnapshot =
    RankSnapshot(step, rank, ranks, 0, 0.0, Seq(StateRange("weights", rank, Array(step.toFloat))))

  private def folders(of: Path): Set[String] = of.toFile.list().toSet

  test("ranks that prune at the same moment leave the newest checkpoints and nothing else") {
    val folder = Files.createTempDirectory("checkpoints")
    val together = new CyclicBarrier(ranks)
    val pool = Executors.newFixedThreadPool(ranks)
    val steps = 200L
    try {
      val done = (0 until ranks).map { rank =>
        pool.submit[Option[Throwable]] { () =>
          val store = new CheckpointStore(folder.toUri.toString, new Configuration())
          val all = Try((1L to steps).foreach { step =>
            store.write(part(step, rank))
            together.await(60, TimeUnit.SECONDS)
            store.prune(rank, ranks, step, keep = 2)
          })
          if (all.isFailure) together.reset() // for the others not to wait
          all.failed.toOption.filterNot(_.isInstanceOf[BrokenBarrierException])
        }
      }
      assert(done.flatMap(_.get(120, TimeUnit.SECONDS)).isEmpty)
    } finally pool.shutdownNow()
    val store = new CheckpointStore(folder.toUri.toString, new Configuration())
    assert(store.complete == Seq(steps, steps - 1, steps - 2))
    assert(folders(folder) == (steps - 2 to steps).map(step => f"step-$step%012d").toSet)
    assert(store.newest.get.vector("weights", ranks).get.toSeq == Seq.fill(ranks)(steps.toFloat))
  }

  test("a rank that comes late removes its files too, and of an incomplete checkpoint nothing counts") {
    val folder = Files.createTempDirectory("checkpoints")
    val store = new CheckpointStore(folder.toUri.toString, new Configuration())
    for (step <- 1L to 4L; rank <- 0 until ranks if step < 4 || rank > 0) store.write(part(step, rank))
    assert(store.complete == Seq(3, 2, 1))
    (0 until ranks).foreach(store.prune(_, ranks, 4, keep = 1))
    assert(store.complete == Seq(3) && folders(folder).size == 2)
    assert(new CheckpointStore(folder.resolve("nowhere").toUri.toString, new Configuration()).newest.isEmpty)
  }
}
