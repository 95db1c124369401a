package sparkdlbench.train

import org.apache.hadoop.conf.Configuration
import org.scalatest.funsuite.AnyFunSuite

import java.nio.file.{Files, Path}
import java.util.concurrent.{BrokenBarrierException, CyclicBarrier, Executors, TimeUnit}
import scala.util.Try

class CheckpointStoreSuite extends AnyFunSuite {
  private val ranks = 4

  private def part(step: Long, rank: Int): RankSnapshot =
    RankSnapshot(
      step,
      rank,
      ranks,
      0,
      DataPosition(50, 1, 1438),
      0.0,
      Seq(StateRange("weights", rank, Array(step.toFloat)))
    )

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
            store.prune(keep = 2)
          })
          if (all.isFailure) together.reset() // for the others not to wait
          all.failed.toOption.filterNot(_.isInstanceOf[BrokenBarrierException])
        }
      }
      assert(done.flatMap(_.get(120, TimeUnit.SECONDS)).isEmpty)
    } finally pool.shutdownNow()
    val store = new CheckpointStore(folder.toUri.toString, new Configuration())
    assert(store.complete == Seq(steps, steps - 1))
    assert(folders(folder) == (steps - 1 to steps).map(step => f"step-$step%012d").toSet)
    assert(store.newest.get.vector("weights", ranks).get.toSeq == Seq.fill(ranks)(steps.toFloat))
  }

  test("what another number of ranks left goes too, and of an incomplete checkpoint nothing counts") {
    val folder = Files.createTempDirectory("checkpoints")
    val store = new CheckpointStore(folder.toUri.toString, new Configuration())
    for (step <- 1L to 4L; rank <- 0 until ranks if step < 4 || rank > 0) store.write(part(step, rank))
    store.write(part(1, 0).copy(size = 2))
    assert(store.complete == Seq(3, 2, 1))
    store.prune(keep = 1)
    assert(store.complete == Seq(3) && folders(folder).size == 2)
    assert(new CheckpointStore(folder.resolve("nowhere").toUri.toString, new Configuration()).newest.isEmpty)
    assert(store.hasAny(0, ranks) && !store.hasAny(ranks, ranks) && !store.hasAny(0, 2))
  }

  test("a damaged checkpoint is passed over for the one before") {
    val (begin, name) = (8 + 8 + 4 + 4 + 4 + (16 + 2) + 8 + 4, 2 + "weights".length)
    val (length, value) = (begin + name + 4, begin + name + 8)
    val damages: Seq[(String, Array[Byte] => Array[Byte])] = Seq(
      "a value" -> { bytes => bytes(value) = (bytes(value) ^ 1).toByte; bytes },
      "a length" -> { bytes => bytes(length) = 0x7f; bytes },
      "a negative length" -> { bytes => bytes(length) = -1; bytes },
      "a name's length" -> { bytes => bytes(begin) = 0x7f; bytes },
      "the end" -> (_.dropRight(3)),
      "everything" -> (_ => Array.emptyByteArray)
    )
    for ((what, damage) <- damages) {
      val folder = Files.createTempDirectory("checkpoints")
      // Without the local file system's own checksums, which would find it first.
      val hadoop = new Configuration()
      hadoop.setBoolean("fs.file.impl.disable.cache", true)
      val store = new CheckpointStore(folder.toUri.toString, hadoop)
      for (step <- 1L to 2L; rank <- 0 until ranks) store.write(part(step, rank))
      val file = folder.resolve("step-000000000002").resolve(s"rank-1-of-$ranks")
      Files.deleteIfExists(file.resolveSibling(s".rank-1-of-$ranks.crc"))
      Files.write(file, damage(Files.readAllBytes(file)))
      assert(store.complete == Seq(2, 1) && store.newest.map(_.step).contains(1L), what)
    }
  }
}
