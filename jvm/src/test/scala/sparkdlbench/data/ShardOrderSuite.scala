package sparkdlbench.data

import org.scalatest.funsuite.AnyFunSuite

/** The laws of the order in which a sharded set is visited. */
class ShardOrderSuite extends AnyFunSuite {
  private def order(rows: Int, batch: Int, sharding: Sharding, seed: Long = 3) =
    new ShardOrder(rows, batch, sharding, seed)

  private def ids(order: ShardOrder, epoch: Int, from: Int, until: Int): Seq[Int] = {
    val into = new Array[Int](until - from)
    order.ids(epoch, from, until, into)
    into.toSeq
  }

  private val cases = for {
    rows <- Seq(1, 7, 100, 1003)
    batch <- Seq(1, 6, 64, 127, 2000)
    shards <- Seq(1, 3, 8)
    (blockRows, window) <- Seq((1, 1), (4, 3), (1000, 2))
    if shards <= rows
  } yield (rows, batch, Sharding(shards, blockRows, window))

  test("an epoch visits each row once, whatever the batch and the cut") {
    cases.foreach { case (rows, batch, sharding) =>
      val all = order(rows, batch, sharding)
      (0 to 2).foreach { epoch =>
        assert(ids(all, epoch, 0, rows).sorted == (0 until rows), s"$rows rows, batch $batch, $sharding")
      }
    }
  }

  test("what is asked for in pieces, by any number of workers and from any step on, is the same order") {
    cases.foreach { case (rows, batch, sharding) =>
      val whole = ids(order(rows, batch, sharding), 1, 0, rows)
      (1 to math.min(5, batch)).foreach { workers =>
        val plan = BatchPlan(rows, batch, workers)
        val orders = Seq.fill(workers)(order(rows, batch, sharding))
        val steps = (0 until plan.stepsPerEpoch).reverse // as a run that goes on from a checkpoint begins anywhere
        val found = steps.map { step =>
          orders.zipWithIndex.flatMap { case (own, rank) =>
            val (from, until) = plan.share(step, rank)
            ids(own, 1, from, until)
          }
        }
        assert(found.reverse.flatten == whole, s"$rows rows, batch $batch, $workers workers, $sharding")
      }
    }
  }

  test("each step takes as many rows, but for one, from each shard") {
    val (rows, batch) = (1003, 24)
    val all = order(rows, batch, Sharding(8, 16, 2))
    (0 until rows / batch).foreach { step =>
      val counts = ids(all, 0, step * batch, (step + 1) * batch).groupBy(all.shardOf).map(_._2.size)
      assert(counts.size == 8 && counts.max - counts.min <= 1)
    }
  }

  test("a rank of N stays with its N-th part of the shards, with 1 shard more at each side that it shares") {
    val (rows, batch, shards) = (64 * 100, 128, 64)
    Seq(1, 2, 3, 5, 8).foreach { workers =>
      val plan = BatchPlan(rows, batch, workers)
      (0 until workers).foreach { rank =>
        val all = order(rows, batch, Sharding(shards, 10, 2))
        val visited = (0 until plan.stepsPerEpoch).flatMap { step =>
          val (from, until) = plan.share(step, rank)
          ids(all, 0, from, until).map(all.shardOf)
        }.toSet
        val room = if (shards % workers == 0) 0 else 2
        assert(visited.size <= math.ceil(shards.toDouble / workers).toInt + room, s"rank $rank of $workers")
      }
    }
  }

  test("the places of a window's rows are those of its blocks, one behind the other, and no window has more than said") {
    cases.foreach { case (rows, batch, sharding) =>
      val all = order(rows, batch, sharding)
      (0 until sharding.shards).foreach { shard =>
        val epoch = all.of(shard, 1)
        val windows = (0 until epoch.windows).map { window =>
          val own = epoch.blocksOf(window).toSeq.map(epoch.rowsOf).flatMap { case (from, until) => from until until }
          assert(own.size <= all.mostInWindow)
          own.zipWithIndex.foreach { case (row, place) =>
            assert(epoch.windowOfRow(row) == window && epoch.placeInWindow(row) == place, s"row $row, $sharding")
          }
          own
        }
        assert(windows.flatten.sorted == (0 until all.size(shard)))
      }
    }
  }

  test("epochs and seeds differ; rows of different blocks come together in a window") {
    val (rows, batch) = (4096, 64)
    val cut = Sharding(4, 32, 4)
    val all = order(rows, batch, cut)
    val (first, second) = (ids(all, 0, 0, rows), ids(all, 1, 0, rows))
    assert(first != second && first != ids(order(rows, batch, cut, seed = 4), 0, 0, rows))
    assert(first == ids(order(rows, batch, cut), 0, 0, rows), "the same seed gives the same order")
    val shard = all.of(0, 0)
    val blocks = (0 until 64).map(index => shard(index) / 32).distinct
    assert(blocks.size == 4 && blocks.forall(shard.windowOf(_) == 0))
    assert(shard.blocksOf(0).toSet == blocks.toSet)
  }

  test(
    "no number of workers changes how a set is cut, and the shards of a batch stay in their place where it has divisors"
  ) {
    val keys = sparkdlbench.config.RunKeys.own ++ (new Csv).keys
    def cut(batch: Int, workers: Int) =
      Placement.sharding(
        1000000,
        784,
        batch,
        sparkdlbench.config.Settings.resolve(Map("batch" -> batch.toString, "workers" -> workers.toString), keys)
      )
    Seq(1, 2, 3, 5).foreach(workers => assert(cut(128, workers) == cut(128, 1)))
    assert(cut(128, 1).shards == 64 && cut(100, 1).shards == 50 && cut(127, 1).shards == 64 && cut(1, 1).shards == 1)
    val small = Placement.sharding(5, 784, 128, sparkdlbench.config.Settings.resolve(Map.empty, keys))
    assert(small.shards == 5 && small.blockRows == 1)
  }
}
