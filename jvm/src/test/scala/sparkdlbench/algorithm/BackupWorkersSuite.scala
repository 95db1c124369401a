package sparkdlbench.algorithm

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.codec.Fp32
import sparkdlbench.common.{ConfigurationException, Json}
import sparkdlbench.config.{RunKeys, Settings}
import sparkdlbench.metrics.PhaseTimer
import sparkdlbench.optimizer.{LearningRateSchedule, SgdVariant}
import sparkdlbench.rank.OwnedShard
import sparkdlbench.topology.Ps
import sparkdlbench.train.RunResult
import sparkdlbench.transport.{InMemoryConditions, ThreadGroup, Transport}
import sparkdlbench.vector.FlatBuffer
import sparkdlbench.LocalRuns

import java.util.concurrent.{CountDownLatch, TimeUnit}

class BackupWorkersSuite extends AnyFunSuite with LocalRuns {
  override protected def cores: Int = 5
  override protected def common: Map[String, String] = Map(
    "transport" -> "block-stream",
    "workers" -> "4",
    "epochs" -> "12",
    "topology" -> "ps",
    "backup_workers" -> "1"
  )

  private def counted(result: RunResult, name: String): Long =
    Json.read(result.summary).path("counts").path(name).path(0).asLong

  private val sgd = new SgdVariant
  private val settings =
    Settings.resolve(Map("optimizer.learning_rate" -> "1"), RunKeys.own ++ sgd.keys ++ LearningRateSchedule.keys)

  /** Rank r has r + 1 rows in each step, and a gradient of as much for each value. What a rank saw at the end, dropped, left out. */
  private def train(transport: Transport, shards: Int, quorum: Int, steps: Long)(before: Long => Unit) = {
    val (parameters, gradient) = (new FlatBuffer(7), new FlatBuffer(7))
    val rows = transport.size * (transport.size + 1) / 2 // of a step; all values fall by as much in each
    (0 until 7).foreach(gradient.floats.put(_, transport.rank + 1f))
    var rule: FirstOf = null
    val exchange = new ShardExchange(
      transport,
      parameters,
      Ps.servers(transport.size, shards),
      ShardPace(1, 1, Some(0)),
      new Fp32,
      new Fp32,
      (weights, from, until) => {
        val shard = OwnedShard.apart(from, weights, sgd.create(until - from, settings))
        rule = new FirstOf(shard, transport.size, quorum, (_, rank) => rank + 1)
        rule
      },
      new PhaseTimer,
      timeoutMillis = 20000
    )
    var leftOut = 0
    for (step <- 0L until steps) {
      exchange.beforeStep(step)
      exchange.awaitReplies()
      before(step)
      exchange.serve()
      if (exchange.isOver(step)) { leftOut += 1; exchange.skip(step + 1) }
      else {
        // What is computed is computed on the step's own weights, of all shards.
        val moved = parameters.toArray.map(_ + step * rows)
        assert(moved.forall(math.abs(_) < 1e-2), s"step $step of rank ${transport.rank}: ${moved.mkString(" ")}")
        exchange.afterStep(step + 1, gradient, 1f)
      }
    }
    exchange.drain()
    (parameters.toArray.toSeq, Option(rule).map(_.dropped), leftOut)
  }

  test("steps wait for all but the backups, sums are scaled to all rows, the slow are dropped, counted, and catch up") {
    val steps = 20L
    for (seed <- Seq(None, Some(1L), Some(2L)); shards <- 1 to 2) {
      val others = new CountDownLatch(2)
      val results = ThreadGroup.run(3, InMemoryConditions(delaySeed = seed)) { transport =>
        val slow = transport.rank == 2 // serves nothing
        val result = train(transport, shards, quorum = 2, steps) { step =>
          if (slow && step == 1) assert(others.await(20, TimeUnit.SECONDS), "the others wait")
          if (!slow && step == steps - 1) others.countDown()
        }
        result
      }
      assert(results.map(_._1).distinct.size == 1)
      // Whichever ranks are summed: the sum is their number of rows, scaled up to 6.
      results.head._1.foreach(value => assert(math.abs(value + 6 * steps) < 1e-3, value))
      // Of its 20 steps the slow one computed at most the first two and those around the end.
      assert(results(2)._3 >= steps - 5, results.map(_._3))
    }
  }

  test("without anybody slow every step still has its quorum, for any number of ranks, shards and backups") {
    for (size <- 1 to 4; shards <- 1 to size; quorum <- 1 to size) {
      val results = ThreadGroup.run(size, InMemoryConditions(delaySeed = Some(size.toLong)))(
        train(_, shards, quorum, 10)(_ => ())
      )
      assert(results.map(_._1).distinct.size == 1)
      val all = size * (size + 1) / 2
      results.head._1.foreach(value => assert(math.abs(value + 10f * all) < 1e-2))
      if (quorum == size) assert(results.forall(each => each._2.forall(_ == 0) && each._3 == 0))
    }
  }

  test("runs learn, count what they drop, go on from checkpoints, and send no more than documented") {
    for (
      more <- Seq(
        Nil,
        Seq("ps.shards" -> "3", "codec" -> "bf16"),
        Seq("backup_workers" -> "3"),
        Seq("ps.place" -> "own")
      )
    ) {
      val result = run(more: _*)
      assert(accuracy(result) > 0.85, s"$more: ${accuracy(result)}")
      val shards = if (more.exists(_._1 == "ps.shards")) 3 else 1
      // A step may drop one gradient a shard and backup; the summary counts each shard's.
      assert(counted(result, "dropped") <= 12L * 29 * shards * 3 && counted(result, "left_out") <= 12L * 29 * 3)
    }
    val (steps, vector) = (10L, 4L * parameters)
    val sent = bytes(run("max_steps" -> "10", "evaluate_every" -> "0"))
    assert(sent <= 3 * (steps * (40 + vector) + 40 + (steps + 1) * (16 + vector)) && sent > steps * vector)
    val folder = java.nio.file.Files.createTempDirectory("checkpoints")
    run("epochs" -> "6", "checkpoint.dir" -> folder.toUri.toString, "checkpoint.every" -> "13")
    // The same vectors as without backups: either goes on from the other's.
    for (backups <- Seq("1", "0"))
      assert(accuracy(run("resume" -> folder.toUri.toString, "backup_workers" -> backups)) > 0.85)
  }

  test("what cannot drop gradients refuses to, and says why") {
    val refused = Seq(
      Seq("topology" -> "sliced") -> "pass through other workers",
      Seq("topology" -> "ring") -> "pass through other workers",
      Seq("transport" -> "shuffle", "topology" -> "sliced") -> "pass through other workers",
      Seq("backup_workers" -> "4") -> "at least one must count",
      Seq("clip_norm" -> "1") -> "clip_norm needs the length",
      Seq("optimizer.name" -> "lars") -> "lengths of whole layers",
      Seq("checkpoint.dir" -> "/nowhere", "checkpoint.every_seconds" -> "5") -> "the first one's clock"
    )
    for ((chosen, why) <- refused) {
      val message = intercept[ConfigurationException](run(chosen: _*)).getMessage
      assert(message.contains("backup_workers = ") && message.contains(why), message)
    }
  }
}
