package sparkdlbench.algorithm

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.codec.Fp32
import sparkdlbench.common.RunFailedException
import sparkdlbench.config.{RunKeys, Settings}
import sparkdlbench.topology.{Ps, Topology}
import sparkdlbench.transport.{InMemoryConditions, ThreadGroup, Transport}
import sparkdlbench.vector.FlatBuffer

/** Steps of topology `ps` with servers of their own, between which workers do something that takes longer than servers wait. */
class HeartbeatsSuite extends AnyFunSuite {
  private val short = InMemoryConditions(timeoutMillis = 2400)
  private val workers = 2

  private def settings(shards: Int): Settings =
    RunKeys.resolve(Map("topology" -> "ps", "ps.place" -> "own", "ps.shards" -> shards.toString))

  /** Three steps of a sum; the workers pause after the second one. What each rank holds at the end: a server what it owns. */
  private def train(shards: Int, conditions: InMemoryConditions)(pause: (Int, Heartbeats) => Unit): Seq[Seq[Float]] =
    ThreadGroup.run(workers + shards, conditions)(sums(_, shards, short.timeoutMillis / 12, pause))

  private def sums(transport: Transport, shards: Int, everyMillis: Long, pause: (Int, Heartbeats) => Unit) = {
    val signs = new Heartbeats(transport, Ps.servers(transport.size, settings(shards)), everyMillis * 1000000L)
    val (gradient, parameters) = (new FlatBuffer(10), new FlatBuffer(10))
    val collective = Topology.of(settings(shards)).bind(signs, gradient, parameters, 4, new Fp32, new Fp32)
    for (step <- 0L until 3L) {
      signs.stepBegins()
      val own = if (transport.rank < workers) transport.rank + 1f + step else 0f
      (0 until 10).foreach(gradient.floats.put(_, own))
      (0 until collective.buckets).foreach(collective.contribute(_, step))
      for (bucket <- 0 until collective.buckets) {
        collective.reduce(bucket, step)
        val (from, until) = collective.owned(bucket)
        for (i <- from until until) parameters.floats.put(i, gradient.floats.get(i))
        collective.publish(bucket, step)
      }
      (0 until collective.buckets).foreach(collective.collect(_, step))
      collective.flush()
      if (step == 1 && transport.rank < workers) pause(transport.rank, signs)
    }
    val (whole, values) = (transport.rank < workers, parameters.toArray.toSeq)
    (0 until collective.buckets).flatMap { bucket =>
      val (from, until) = if (whole) collective.range(bucket) else collective.owned(bucket)
      values.slice(from, until)
    }
  }

  test("servers wait as long as workers tell them that they live") {
    val cases = for (shards <- 1 to 2; seed <- Seq(None, Some(3L))) yield (shards, seed)
    ThreadGroup.together(cases) { case (shards, seed) =>
      val seen = train(shards, short.copy(delaySeed = seed)) { (_, signs) =>
        (1 to 20).foreach { _ => Thread.sleep(200); signs.alive() }
      }
      assert(seen.take(workers).forall(_.size == 10) && seen.drop(workers).map(_.size).sum == 10)
      assert(seen.forall(_.forall(_ == 3f + 2 * 2)), seen)
    }
  }

  test("a worker that does not is noticed") {
    val error = intercept[RunFailedException](train(1, short) { (rank, signs) =>
      // The server waits for rank 0 first.
      (1 to 20).foreach { _ => Thread.sleep(200); if (rank == 1) signs.alive() }
    })
    assert(error.getMessage.contains("waited 2400 ms"), error.getMessage)
  }

  test("a step that is not interrupted sends none") {
    val sent = ThreadGroup.run(3) { transport =>
      sums(transport, 1, 60000, (_, signs) => signs.alive())
      transport.bytesSent("in-memory")
    }
    assert(sent.sum == 3 * (2 * 40L + 2 * 40L))
  }
}
