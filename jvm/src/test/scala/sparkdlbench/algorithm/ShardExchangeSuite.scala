package sparkdlbench.algorithm

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.RunFailedException
import sparkdlbench.codec.{Codec, Fp32}
import sparkdlbench.config.{RunKeys, Settings}
import sparkdlbench.engine.FlatBuffer
import sparkdlbench.metrics.PhaseTimer
import sparkdlbench.optimizer.{Schedule, SgdVariant}
import sparkdlbench.topology.{Ps, TestCodecs}
import sparkdlbench.transport.{InMemoryConditions, ThreadGroup, Transport}

import java.util.concurrent.{CountDownLatch, TimeUnit}
import scala.util.Random

/** The parameter server of downpour over transports in memory, late and reordered arrival included. */
class ShardExchangeSuite extends AnyFunSuite {
  private val sgd = new SgdVariant
  private val settings =
    Settings.resolve(Map("optimizer.learning_rate" -> "1"), RunKeys.own ++ sgd.keys ++ Schedule.keys)

  private def exchange(
      transport: Transport,
      parameters: FlatBuffer,
      shards: Int,
      pace: ShardPace,
      codec: Codec = new Fp32
  ): ShardExchange = withRule(transport, parameters, shards, pace, codec)._1

  private def withRule(
      transport: Transport,
      parameters: FlatBuffer,
      shards: Int,
      pace: ShardPace,
      codec: Codec = new Fp32
  ): (ShardExchange, Option[AtOnce]) = {
    var rule: AtOnce = null
    val exchange = new ShardExchange(
      transport,
      parameters,
      Ps.servers(transport.size, shards),
      pace,
      codec,
      TestCodecs.plain.head,
      (weights, from, until) => {
        rule = new AtOnce(weights, transport.size, sgd.create(until - from, settings), version => version)
        rule
      },
      new PhaseTimer
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
        for (until <- Seq(7L, 8L, 20L)) { // settled in between, also after a step that pushed nothing
          while (step < until) {
            ranks.beforeStep(step)
            ranks.serve()
            step += 1
            ranks.afterStep(step, filled(length, (transport.rank + step - 1).toFloat), 1f)
          }
          ranks.settle()
          ranks.settle()
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
        ranks.settle()
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
        ranks.settle()
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
        ranks.settle()
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
      ranks.settle()
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
      ranks.settle()
    })
    assert(error.getMessage.contains("waited 600 ms"), error.getMessage)
  }
}
