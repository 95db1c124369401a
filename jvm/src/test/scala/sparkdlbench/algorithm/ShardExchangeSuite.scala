package sparkdlbench.algorithm

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.codec.{Codec, Fp32}
import sparkdlbench.common.RunFailedException
import sparkdlbench.config.{RunKeys, Settings}
import sparkdlbench.metrics.PhaseTimer
import sparkdlbench.optimizer.{LearningRateSchedule, Optimizer, SgdVariant}
import sparkdlbench.rank.OwnedShard
import sparkdlbench.topology.{Ps, TestCodecs}
import sparkdlbench.transport.{InMemoryConditions, ThreadGroup, Transport}
import sparkdlbench.vector.FlatBuffer

import java.nio.FloatBuffer
import java.util.concurrent.{CountDownLatch, TimeUnit}
import scala.collection.mutable
import scala.util.Random

/** The parameter server of downpour over transports in memory, late and reordered arrival included. */
class ShardExchangeSuite extends AnyFunSuite {
  private val sgd = new SgdVariant
  private val settings =
    Settings.resolve(Map("optimizer.learning_rate" -> "1"), RunKeys.own ++ sgd.keys ++ LearningRateSchedule.keys)

  private def exchange(
      transport: Transport,
      parameters: FlatBuffer,
      shards: Int,
      pace: ShardPace,
      codec: Codec = new Fp32
  ): ShardExchange = withRule(transport, parameters, shards, pace, codec)._1

  /**
   * @param own
   *   the servers are ranks after the last worker's
   * @param timeoutMillis
   *   as long as the transport's
   */
  private def withRule(
      transport: Transport,
      parameters: FlatBuffer,
      shards: Int,
      pace: ShardPace,
      codec: Codec = new Fp32,
      own: Boolean = false,
      timeoutMillis: Long = 20000,
      optimizer: Int => Optimizer = sgd.create(_, settings)
  ): (ShardExchange, Option[AtOnce]) = {
    var rule: AtOnce = null
    val workers = if (own) transport.size - shards else transport.size
    val exchange = new ShardExchange(
      transport,
      parameters,
      Ps.servers(transport.size, shards, own),
      pace,
      codec,
      TestCodecs.plain.head,
      (weights, from, until) => {
        rule = new AtOnce(OwnedShard.unsummed(from, weights, optimizer(until - from)), workers)
        rule
      },
      new PhaseTimer,
      timeoutMillis
    )
    (exchange, Option(rule))
  }

  private def filled(length: Int, value: Float): FlatBuffer = {
    val buffer = new FlatBuffer(length)
    (0 until length).foreach(buffer.floats.put(_, value))
    buffer
  }

  private def only(values: FlatBuffer): Float = {
    assert(values.toArray.distinct.length == 1, "not all values have had the same updates")
    values.floats.get(0)
  }

  /** Rank r's gradient in step s is r + s everywhere; what that makes of 0 after `steps` of each rank. */
  private def expected(size: Int, steps: Long): Float =
    -(for (rank <- 0 until size; step <- 0L until steps) yield rank + step).sum.toFloat

  test("no push is lost and none counts twice, whatever the pace and the arrival; after settling all see the same") {
    for {
      size <- 1 to 4
      shards <- 1 to size
      (length, pace) <- Seq(
        1 -> ShardPace(1, 1, None),
        17 -> ShardPace(3, 2, None),
        2 -> ShardPace(1, 1, Some(0)),
        33 -> ShardPace(2, 5, Some(1)),
        100 -> ShardPace(4, 1, Some(7))
      )
      seed <- Seq(None, Some(1L), Some(2L))
    } {
      val label = s"$size ranks, $shards shards, $pace, seed $seed"
      val results = ThreadGroup.run(size, InMemoryConditions(delaySeed = seed)) { transport =>
        val parameters = new FlatBuffer(length)
        val (ranks, rule) = withRule(transport, parameters, shards, pace)
        var step = 0L
        for (until <- Seq(7L, 8L, 20L)) { // drained in between, also after a step that pushed nothing
          while (step < until) {
            ranks.beforeStep(step)
            ranks.serve()
            step += 1
            ranks.afterStep(step, filled(length, (transport.rank + step - 1).toFloat), 1f)
          }
          ranks.drain()
          ranks.drain()
          assert(only(parameters) == expected(size, step), s"$label, after $step steps")
        }
        (ranks.lag.toSeq, rule.map(_.staleness.sum), rule.map(_.version))
      }
      results.foreach { case (lag, pushes, updates) =>
        assert(lag.sum == 20, label)
        pace.bound.foreach(bound => assert(lag.drop(bound + 1).sum == 0, s"$label: $lag"))
        assert(pushes == updates && updates.forall(_ <= 20L * size), label)
      }
    }
  }

  test("without a bound a rank that stands still holds up nobody, and its server's pushes are accrued") {
    val (size, steps) = (3, 50L)
    for (seed <- Seq(None, Some(3L))) {
      val others = new CountDownLatch(size - 1)
      val lags = ThreadGroup.run(size, InMemoryConditions(delaySeed = seed)) { transport =>
        val parameters = new FlatBuffer(9)
        val ranks = exchange(transport, parameters, size, ShardPace(1, 1, None))
        for (step <- 0L until steps) {
          ranks.beforeStep(step)
          // Rank 0 begins its second step when the others have made their last.
          if (transport.rank == 0 && step == 1) assert(others.await(20, TimeUnit.SECONDS), "the others wait")
          ranks.afterStep(step + 1, filled(9, (transport.rank + step).toFloat), 1f)
        }
        if (transport.rank != 0) others.countDown()
        ranks.drain()
        assert(only(parameters) == expected(size, steps))
        ranks.lag.lastIndexWhere(_ > 0)
      }
      assert(lags.tail.forall(_ >= steps - 2), lags)
    }
  }

  test("a bound holds the fast to the slow") {
    val random = new Random(1)
    for (bound <- Seq(0, 1, 4)) {
      val started = new java.util.concurrent.atomic.AtomicIntegerArray(3)
      ThreadGroup.run(3) { transport =>
        val parameters = new FlatBuffer(5)
        val ranks = exchange(transport, parameters, 2, ShardPace(1, 1, Some(bound)))
        for (step <- 0L until 40L) {
          ranks.beforeStep(step)
          started.set(transport.rank, step.toInt)
          // A rank in step s has pushed s steps; nobody is in a step above s + bound + the step whose push is on its way.
          val slowest = (0 until 3).map(started.get).min
          assert(step - slowest <= bound + 1, s"bound $bound")
          if (transport.rank == 1 && step % 10 == 0) Thread.sleep(random.nextInt(5).toLong)
          ranks.afterStep(step + 1, filled(5, 1f), 1f)
        }
        ranks.drain()
        assert(only(parameters) == -120f)
      }
    }
  }

  test("bound 0 is synchronous: the same as one rank with all gradients, up to the order of sums") {
    for (size <- 2 to 4; shards <- 1 to size) {
      val length = 23
      def slope(rank: Int, weight: Float, i: Int): Float = 0.05f * (weight - (rank + i % 5))
      val all = ThreadGroup.run(size, InMemoryConditions(delaySeed = Some(5L))) { transport =>
        val (parameters, gradient) = (new FlatBuffer(length), new FlatBuffer(length))
        val ranks = exchange(transport, parameters, shards, ShardPace(1, 1, Some(0)))
        for (step <- 0L until 30L) {
          ranks.beforeStep(step)
          (0 until length).foreach(i => gradient.floats.put(i, slope(transport.rank, parameters.floats.get(i), i)))
          ranks.afterStep(step + 1, gradient, 1f)
        }
        ranks.drain()
        parameters.toArray.toSeq
      }
      assert(all.distinct.size == 1)
      val alone = Array.fill(length)(0f)
      for (_ <- 0 until 30; i <- 0 until length) alone(i) -= (0 until size).map(slope(_, alone(i), i)).sum
      all.head.zip(alone).foreach { case (a, b) => assert(math.abs(a - b) < 1e-4) }
    }
  }

  test("what a codec leaves out of pushes is in the residuals") {
    val results = ThreadGroup.run(3, InMemoryConditions(delaySeed = Some(2L))) { transport =>
      val parameters = new FlatBuffer(11)
      val ranks = exchange(transport, parameters, 2, ShardPace(1, 2, None), TestCodecs.Remainders)
      for (step <- 0L until 15L) {
        ranks.beforeStep(step)
        ranks.afterStep(step + 1, filled(11, (transport.rank + step).toFloat), 1f)
      }
      ranks.drain()
      (parameters.toArray.toSeq, ranks.residual.get.toArray.toSeq)
    }
    assert(results.map(_._1).distinct.size == 1)
    for (i <- 0 until 11) assert(results.head._1(i) - results.map(_._2(i)).sum == expected(3, 15))
    assert(results.exists(_._2.exists(_ != 0f)))
  }

  test("who waits for a message that is lost fails in time, and says for whom it waited") {
    val lost = InMemoryConditions(timeoutMillis = 600, drops = (lane, sequence) => lane.id == 0 && sequence == 3)
    val error = intercept[RunFailedException](ThreadGroup.run(2, lost) { transport =>
      val ranks = exchange(transport, new FlatBuffer(4), 1, ShardPace(1, 1, Some(1)))
      for (step <- 0L until 20L) {
        ranks.beforeStep(step)
        ranks.afterStep(step + 1, filled(4, 1f), 1f)
      }
      ranks.drain()
    })
    assert(error.getMessage.contains("waited 600 ms"), error.getMessage)
  }

  // A busy machine may hold a rank up for most of the timeout, and the tests below still hold.
  private val short = InMemoryConditions(timeoutMillis = 2400)

  /** Of one rank; `pause` before each step. */
  private def train(ranks: ShardExchange, rank: Int, steps: Long, length: Int)(pause: Long => Unit): Unit =
    for (step <- 0L until steps) {
      ranks.beforeStep(step)
      pause(step)
      ranks.serve()
      ranks.afterStep(step + 1, filled(length, (rank + step).toFloat), 1f)
    }

  test(
    "who is done waits for a slow rank as long as that makes steps, whichever rank is slow and however seldom it pushes"
  ) {
    val (size, steps, length) = (3, 9L, 6)
    // Rank 0 serves the one shard.
    val cases = Seq(
      (0, ShardPace(1, 1, None), None),
      (1, ShardPace(1, 1, None), Some(4L)),
      (2, ShardPace(100, 100, None), None)
    )
    ThreadGroup.together(cases) { case (slow, pace, seed) =>
      val start = System.nanoTime()
      val results = ThreadGroup.run(size, short.copy(delaySeed = seed)) { transport =>
        val parameters = new FlatBuffer(length)
        val (ranks, _) = withRule(transport, parameters, 1, pace, timeoutMillis = short.timeoutMillis)
        train(ranks, transport.rank, steps, length)(_ => if (transport.rank == slow) Thread.sleep(400))
        ranks.drain()
        only(parameters)
      }
      assert(results.forall(_ == expected(size, steps)), s"rank $slow is slow, $pace")
      assert(
        System.nanoTime() - start > short.timeoutMillis * 1000000L,
        "nobody had to wait for longer than the timeout"
      )
    }
  }

  test("a rank that is silent is noticed though others are not, and named") {
    val (size, length) = (3, 6)
    val over = new CountDownLatch(1)
    var waited = 0L
    val error = intercept[RunFailedException](ThreadGroup.run(size, short) { transport =>
      val (ranks, _) =
        withRule(transport, new FlatBuffer(length), 1, ShardPace(1, 1, None), timeoutMillis = short.timeoutMillis)
      val start = System.nanoTime()
      // Rank 1 is slow, rank 2 hangs after its first step, and rank 0 waits for both.
      train(ranks, transport.rank, 30, length) { step =>
        if (transport.rank == 1) Thread.sleep(200)
        if (transport.rank == 2 && step == 1) over.await(30, TimeUnit.SECONDS): Unit
      }
      try ranks.drain()
      finally if (transport.rank == 0) { waited = System.nanoTime() - start; over.countDown() }
    })
    assert(
      error.getMessage.contains("Rank 0 waited 2400 ms for rank 2, of which it has heard nothing"),
      error.getMessage
    )
    assert(waited < 2 * short.timeoutMillis * 1000000L)
  }

  test("servers of their own wait for workers that are about something else for long") {
    val (workers, length) = (2, 6)
    ThreadGroup.together(1 to 2) { shards =>
      val results = ThreadGroup.run(workers + shards, short) { transport =>
        val parameters = new FlatBuffer(length)
        val (ranks, _) = withRule(
          transport,
          parameters,
          shards,
          ShardPace(1, 1, Some(0)),
          own = true,
          timeoutMillis = short.timeoutMillis
        )
        val end = 6L
        for (until <- Seq(3L, end)) {
          if (transport.rank < workers)
            for (step <- until - 3 until until) {
              ranks.beforeStep(step)
              ranks.afterStep(step + 1, filled(length, (transport.rank + step).toFloat), 1f)
            }
          else ranks.serveUntil(until)
          ranks.drain()
          assert(ranks.steps == until)
          // As an evaluation, which servers have no part in; after the last one nobody waits.
          if (transport.rank < workers && until < end) (1 to 20).foreach { _ => Thread.sleep(200); ranks.alive() }
        }
        only(parameters)
      }
      assert(results.forall(_ == expected(workers, 6)), results)
    }
  }

  test("the learning rate is that of the workers' mean step, however many pushes brought it") {
    val seen = mutable.ArrayBuffer.empty[Long]
    val recording = new Optimizer {
      def update(weights: FloatBuffer, gradient: FloatBuffer, step: Long): Unit = seen += step: Unit
      def state: Map[String, Array[Float]] = Map.empty
    }
    val rule = new AtOnce(OwnedShard.unsummed(0, new FlatBuffer(1), recording), 2)
    val gradient = new FlatBuffer(1).floats
    def push(rank: Int, clock: Long): Unit = { rule.push(rank, gradient, clock, rule.version); rule.knows(rank, clock) }
    rule.beginAt(10)
    for (step <- 11L to 12L; rank <- 0 to 1) push(rank, step)
    push(0, 20) // eight steps at once, which waited for a reply
    push(0, 21)
    push(1, 21)
    push(1, 22)
    assert(seen.toSeq == Seq(10L, 10L, 11L, 11L, 12L, 16L, 16L, 21L))
    assert(rule.stamp == 21)

    // In a group: rank 0, which serves, stands still in its second step until the others have made all of theirs.
    val (size, steps) = (3, 50L)
    val others = new CountDownLatch(size - 1)
    seen.clear()
    ThreadGroup.run(size) { transport =>
      val (ranks, _) =
        withRule(transport, new FlatBuffer(4), 1, ShardPace(1, 1, None), optimizer = _ => recording)
      train(ranks, transport.rank, steps, 4) { step =>
        if (transport.rank == 0 && step == 1) assert(others.await(20, TimeUnit.SECONDS), "the others wait")
      }
      if (transport.rank != 0) others.countDown()
      ranks.drain()
    }
    assert(seen.size < steps * size, "no push brought several steps")
    assert(seen.toSeq == seen.sorted.toSeq && seen.last >= 2 * steps / size, seen)
  }
}
