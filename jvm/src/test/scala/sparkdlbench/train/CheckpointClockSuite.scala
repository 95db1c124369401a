package sparkdlbench.train

import sparkdlbench.{OnOneLine, TakesLong}
import sparkdlbench.collective.Announcements
import sparkdlbench.topology.{Sliced, TestCodecs}
import sparkdlbench.transport.{InMemoryConditions, RankGroups, ThreadGroup, Transport}
import sparkdlbench.vector.FlatBuffer

/** Ranks as threads; every rank's own clock runs at a speed of its own, and only rank 0's counts. */
class CheckpointClockSuite extends OnOneLine {
  private val interval = 1000L

  /** Steps after which each rank made a checkpoint, and what rank 0 announced. A step takes `stepNanos` of rank 0's clock. */
  private def run(ranks: Int, steps: Long, stepNanos: Long => Long, groups: Option[RankGroups] = None, seed: Long = 1) =
    ThreadGroup.run(ranks, InMemoryConditions(delaySeed = Some(seed), groups = groups)) { transport =>
      val announcements = new Announcements(transport)
      val step = training(transport)
      var now = 1000000L * transport.rank
      val clock = new CheckpointClock(announcements, interval, 0, () => now)
      val formula = new Sliced().bytesPerStep(
        transport.rank,
        transport.groups,
        10,
        4,
        TestCodecs.plain.head,
        TestCodecs.plain.head
      )
      var taken = Seq.empty[(Long, Long)]
      for (made <- 1L to steps) {
        step(made - 1)
        now += stepNanos(made) * (1 + transport.rank)
        if (clock.due(made)) { taken :+= (made -> now); clock.restart() }
      }
      (taken, transport.bytesSent.values.sum - steps * formula.total.get)
    }

  /** A step of a training without a network: the ranks wait for each other and no longer than that. */
  private def training(transport: Transport): Long => Unit = {
    val (gradient, parameters) = (new FlatBuffer(10), new FlatBuffer(10))
    val plain = TestCodecs.plain.head
    val collective = new Sliced().bind(transport, gradient, parameters, 4, plain, plain)
    sequence => {
      (0 until collective.buckets).foreach(collective.contribute(_, sequence))
      (0 until collective.buckets).foreach { bucket =>
        collective.reduce(bucket, sequence); collective.publish(bucket, sequence)
      }
      (0 until collective.buckets).foreach(collective.collect(_, sequence))
      collective.flush()
    }
  }

  /** Steps as short as can be, of which checkpoints are the furthest apart. */
  private lazy val shortest = run(3, 5 * interval + 5, _ => 1L)

  private def intervals(taken: Seq[(Long, Long)]): Seq[Long] =
    taken.map(_._2).zip(0L +: taken.map(_._2)).map { case (end, start) => end - start }

  test("all ranks take it after the same step, as late as a step at most", TakesLong) {
    val short = for (ranks <- 1 to 4; stepNanos <- Seq(130L, 999L, 1000L, 2500L)) yield (ranks, stepNanos)
    for ((ranks, stepNanos) <- short ++ Seq(1 -> 1L, 3 -> 1L, 4 -> 7L)) {
      val results =
        if ((ranks, stepNanos) == ((3, 1L))) shortest
        else run(ranks, 5 * interval / math.min(stepNanos, 1000) + 5, _ => stepNanos)
      assert(results.forall(_._1.map(_._1) == results.head._1.map(_._1)))
      assert(results.head._1.size >= 4)
      intervals(results.head._1).foreach(length =>
        assert(
          length >= interval && length < interval + stepNanos + (if (stepNanos < 8) 8 else 1),
          s"$stepNanos ns a step"
        )
      )
    }
  }

  test("a checkpoint costs about log2 of its steps in announcements of 8 bytes, which every rank answers") {
    val results = shortest
    val announcements = results.head._2 / 8 / 2
    assert(results.tail.forall(_._2 == 8 * announcements))
    assert(results.head._1.size == 5 - 1 || results.head._1.size == 5)
    assert(
      announcements <= 5 * 14,
      s"$announcements announcements for ${results.head._1.size} checkpoints of 1000 steps"
    )
  }

  test("ranks that do not train in lockstep never overrun each other with announcements") {
    val told = ThreadGroup.run(3) { transport =>
      val announcements = new Announcements(transport)
      (0L until 200L).map { number =>
        if (transport.rank == 2 && number % 20 == 0) Thread.sleep(5) // rank 0 would be far ahead by then
        announcements.announced(number * number)
      }
    }
    assert(told.forall(_ == (0L until 200L).map(number => number * number)))
  }

  test(
    "all ranks end at the same checkpoint, at most a look after rank 0 wants it, with checkpoints by time or without"
  ) {
    for (ranks <- Seq(1, 2, 3); everyNanos <- Seq(0L, 1000L); stepNanos <- Seq(1L, 30L, 700L)) {
      val wanted = 5000L
      val told = ThreadGroup.run(ranks) { transport =>
        val announcements = new Announcements(transport)
        val step = training(transport)
        var now = 0L
        val wants = () => { assert(transport.rank == 0); now >= wanted }
        val clock =
          new CheckpointClock(announcements, everyNanos, 0, () => now, wantsEnd = wants, lookNanos = 100)
        var (made, checkpoints) = (0L, 0)
        while (!clock.ends) {
          assert(now < 2 * wanted, "it does not end")
          step(made)
          made += 1
          now += stepNanos
          if (clock.due(made)) { checkpoints += 1; clock.restart() }
        }
        (made, checkpoints, now)
      }
      assert(told.forall(_ == told.head))
      val (_, checkpoints, ended) = told.head
      assert(ended >= wanted && ended <= wanted + 100 + stepNanos, s"$stepNanos ns a step")
      assert(if (everyNanos == 0) checkpoints == 1 else checkpoints >= 3)
    }
  }

  test("steps that become slower or faster do not make ranks disagree; groups of ranks either") {
    val groups = Some(RankGroups(IndexedSeq(IndexedSeq(0, 2), IndexedSeq(1, 3))))
    ThreadGroup.together(1L to 3L) { seed =>
      val results = run(4, 1500, made => if ((made / 100) % 2 == 0) 1L else 20L, groups, seed)
      assert(results.forall(_._1.map(_._1) == results.head._1.map(_._1)))
      // Until the next look at the clock it may take as long as half of the old estimate at the new speed.
      assert(results.head._1.size >= 4 && intervals(results.head._1).forall(length => length >= 1000 && length < 11000))
    }
  }
}
