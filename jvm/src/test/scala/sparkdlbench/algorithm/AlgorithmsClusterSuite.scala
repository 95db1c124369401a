package sparkdlbench.algorithm

import org.apache.spark.SparkContext
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.TakesLong
import sparkdlbench.common.Json
import sparkdlbench.config.Variants
import sparkdlbench.topology.Topology
import sparkdlbench.train.{RunResult, TrainingRun}
import sparkdlbench.transport.LocalCluster

import java.nio.file.{Files, Paths}
import scala.concurrent.duration._
import scala.concurrent.{Await, ExecutionContext, Future}

/** Every algorithm between real executor processes, over Spark's block-transfer servers and over connections of our own. */
class AlgorithmsClusterSuite extends AnyFunSuite {
  private lazy val results = Files.createTempDirectory("results").toString

  private val cases: Seq[(String, Seq[(String, String)])] = Seq(
    "sync-sgd" -> Seq("topology" -> "ps", "ps.shards" -> "2"),
    "lars" -> Seq("optimizer.name" -> "lars", "optimizer.trust" -> "0.02"),
    "local-sgd" -> Seq("algorithm" -> "local-sgd", "local.tau" -> "2"),
    "easgd" -> Seq("algorithm" -> "easgd", "easgd.tau" -> "3"),
    "gossip" -> Seq("algorithm" -> "gossip", "gossip.tau" -> "2"),
    "gd" -> Seq("algorithm" -> "gd", "gd.rows" -> "200"),
    "lbfgs" -> Seq("algorithm" -> "lbfgs", "lbfgs.rows" -> "200"),
    "downpour" -> Seq("algorithm" -> "downpour", "topology" -> "ps", "ps.shards" -> "2", "downpour.n_push" -> "2"),
    "bounded" -> Seq("algorithm" -> "downpour", "topology" -> "ps", "ps.shards" -> "2", "downpour.stale" -> "0"),
    "backup" -> Seq("backup_workers" -> "1", "topology" -> "ps"),
    // Weights that never change: where all others begin.
    "start" -> Seq("optimizer.learning_rate" -> "0")
  )

  /** Every algorithm over every other topology among the ranks (`downpour` has servers alone). */
  private val elsewhere: Seq[(String, Seq[(String, String)])] = for {
    (name, chosen) <- cases if !Set("downpour", "bounded", "backup", "lars", "start").contains(name)
    topology <- Variants.all[Topology].filter(_.amongRanks).map(_.name)
    if chosen.toMap.getOrElse("topology", "sliced") != topology
  } yield s"$name-$topology" -> (chosen.filter(_._1 != "topology") :+ ("topology" -> topology))

  /** Whose bits depend on arrival. */
  private val arrival = Set("downpour", "bounded", "backup")

  private val base = Map(
    "workers" -> "3",
    "max_steps" -> "8",
    "batch" -> "50",
    "evaluate_every" -> "0",
    "model.hidden" -> "32",
    "bucket_bytes" -> "4000",
    "in_memory_first" -> "off",
    "memory_check" -> "off",
    "resources.hertz" -> "0"
  )

  private val stream = Seq("transport" -> "block-stream", "host_local" -> "off")
  private val mapped = Seq("transport" -> "block-stream", "host_local" -> "on")
  private val tcp = Seq("transport" -> "tcp")

  /** All at once, since each mostly waits for its barrier stage to gather; by name and channel. */
  private def train(
      sc: SparkContext,
      runs: Seq[(String, Seq[(String, String)])]
  ): Map[(String, Seq[(String, String)]), RunResult] = {
    implicit val threads: ExecutionContext = ExecutionContext.fromExecutor(task => new Thread(task).start())
    def one(name: String, channel: Seq[(String, String)]) = {
      val settings =
        base ++ (cases ++ elsewhere).toMap.apply(name) ++ channel ++ Seq("results" -> results, "name" -> name)
      TrainingRun.prepare(sc, settings).train()
    }
    val together = runs.map { case run @ (name, channel) => Future(run -> one(name, channel)) }
    Await
      .result(Future.sequence(together), 5.minutes)
      .map { case run @ ((name, channel), result) =>
        if (crossed(result)) run else (name, channel) -> one(name, channel)
      }
      .toMap
  }

  /**
   * Not all ranks were in one executor. They are when Spark offers the slots of that one alone, as it does when a task of
   * another run has just ended there; a run by itself is spread.
   */
  private def crossed(result: RunResult): Boolean =
    Seq("block-stream", "tcp", "host-local").exists(sent(result, _) > 0)

  private def apart(one: RunResult, other: RunResult): Float =
    one.weights.zip(other.weights).map { case (a, b) => math.abs(a - b) }.max

  /** Length of the way that a run's weights have gone, beside that of `sync-sgd`, and the cosine between the two ways. */
  private def way(of: RunResult, sync: RunResult, start: RunResult): (Double, Double) = {
    def from(result: RunResult) = result.weights.zip(start.weights).map { case (a, b) => (a - b).toDouble }
    def product(one: Array[Double], other: Array[Double]) = one.zip(other).map { case (a, b) => a * b }.sum
    val (own, whole) = (from(of), from(sync))
    val (length, other) = (math.sqrt(product(own, own)), math.sqrt(product(whole, whole)))
    (length / other, product(own, whole) / (length * other))
  }

  private def sent(result: RunResult, channel: String): Long =
    Json.read(result.summary).path("bytes").path(channel).asLong

  test(
    "every algorithm trains alike over block-stream and tcp, and the asynchronous ones through mapped memory too",
    TakesLong
  ) {
    // Two slots in each executor for each of the 11 runs: none can fill up, so that every run's 3 ranks lie in both.
    LocalCluster.run(2, 24, LocalCluster.prepared: _*) { sc =>
      val names = cases.map(_._1)
      val found = train(sc, names.map(_ -> stream)) ++
        train(sc, names.map(_ -> tcp) ++ Seq("downpour" -> mapped, "backup" -> mapped))
      // About as far as sync-sgd, and the same way: 0.98 to 1.14 of it, with cosines of 0.974 and more.
      for (name <- arrival; channel <- Seq(stream, tcp, mapped); run <- found.get((name, channel))) {
        val (length, cosine) = way(run, found(("sync-sgd", stream)), found(("start", stream)))
        assert(length > 0.7 && length < 1.5 && cosine > 0.9, s"$name over $channel: $length times as far, $cosine")
      }
      for (name <- names; (one, other) = (found((name, stream)), found((name, tcp)))) {
        assert(sent(one, "block-stream") > 0 && sent(other, "tcp") > 0, name)
        if (!arrival(name)) assert(apart(one, other) == 0f, name)
      }
      for (name <- Seq("downpour", "backup")) assert(sent(found((name, mapped)), "host-local") > 0, name)
      for (channel <- Seq(stream, tcp)) assert(apart(found(("bounded", channel)), found(("sync-sgd", channel))) < 1e-4)
      // Fewer at once than there are slots.
      for (some <- elsewhere.map(_._1).grouped(8)) {
        val there = train(sc, some.map(_ -> stream)) ++ train(sc, some.map(_ -> tcp))
        for (name <- some) {
          assert(sent(there((name, stream)), "block-stream") > 0 && sent(there((name, tcp)), "tcp") > 0, name)
          assert(apart(there((name, stream)), there((name, tcp))) == 0f, name)
        }
      }
      val counts = Json.read(found(("downpour", tcp)).summary).path("counts")
      assert(counts.path("lag").elements.hasNext && counts.path("staleness").elements.hasNext)
      Seq(stream, mapped, tcp).foreach(endsAtOnce(sc, _))
    }
  }

  /** Ranks that have nothing to exchange leave while others still open their lanes. */
  private def endsAtOnce(sc: SparkContext, channel: Seq[(String, String)]): Unit = {
    val folder = Files.createTempDirectory("checkpoints").toUri.toString
    def trained(more: (String, String)*): RunResult =
      TrainingRun.prepare(sc, base ++ channel ++ more + ("results" -> results)).train()
    val whole = trained("checkpoint.dir" -> folder)
    for (_ <- 1 to 3) {
      val resumed = trained("resume" -> folder)
      assert(resumed.weights === whole.weights, channel)
      val attempts =
        Files.readString(Paths.get(resumed.folder, "events.jsonl")).linesIterator.count(_.contains("rank_groups"))
      assert(attempts == 1, channel)
    }
  }
}
