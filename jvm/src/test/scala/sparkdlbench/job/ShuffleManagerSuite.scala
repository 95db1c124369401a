package sparkdlbench.job

import org.apache.spark.SparkContext
import org.apache.spark.sparkdlbench.SparkTestSupport
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.TakesLong
import sparkdlbench.common.Json
import sparkdlbench.config.Settings
import sparkdlbench.train.{RunResult, TrainingRun}
import sparkdlbench.transport.LocalCluster

import java.nio.file.{Files, Path}
import scala.jdk.CollectionConverters._

/** Training between executor processes through Spark's own shuffle manager and through another one, to the same bits. */
class ShuffleManagerSuite extends AnyFunSuite {
  private lazy val results: Path = Files.createTempDirectory("results")
  private val parameters = 64 * 32 + 32 + 32 * 10 + 10
  private val steps = 12L
  private val framing = ShuffleRecord.HeaderBytes + org.apache.spark.sparkdlbench.RankShuffles.Framing

  private def run(sc: SparkContext, settings: (String, String)*): RunResult = {
    val small = Map(
      "data.source" -> "digits",
      "model.name" -> "mlp",
      "model.hidden" -> "32",
      "batch" -> "50",
      "epochs" -> "1",
      "max_steps" -> steps.toString,
      "optimizer.learning_rate" -> "0.1",
      "workers" -> "2",
      "transport" -> "shuffle",
      "results" -> results.toString
    )
    TrainingRun.prepare(sc, small ++ settings).train()
  }
  private def loss(result: RunResult): Double = Json.read(result.summary).path("final").path("train_loss").asDouble
  private def bytes(result: RunResult): Map[String, Long] =
    Json.read(result.summary).path("bytes").properties.asScala.map(e => e.getKey -> e.getValue.asLong).toMap

  /** Summed over the executors: bytes served to others, found in the own process, held now. */
  private def counted(sc: SparkContext): (Long, Long, Long) = {
    val each = LocalCluster.ranks(sc, 2, Settings.resolve(Map.empty, Nil))(_ => SparkTestSupport.ownWay)
    (each.map(_._1).sum, each.map(_._2).sum, each.map(_._3).sum)
  }

  private val ownWay = "org.apache.spark.sparkdlbench.OwnWayShuffleManager"

  /** As users of both have it: our plugin, which wraps their manager. */
  private val delegated =
    if (org.apache.spark.SPARK_VERSION.startsWith("3."))
      LocalCluster.prepared ++ Seq(
        "spark.shuffle.manager" -> "org.apache.spark.sparkdlbench.SparkDLDelegatingShuffleManager",
        "spark.sparkdl.shuffle.delegate" -> ownWay
      )
    else LocalCluster.prepared :+ ("spark.shuffle.manager" -> ownWay)

  /** Spark's own manager, no plugin: weights, last loss and bytes of the run that the other manager's is held against. */
  private lazy val sorted: (Seq[Float], Double, Map[String, Long]) =
    LocalCluster.run(2, 1, "spark.locality.wait" -> "1s", "spark.task.maxFailures" -> "4") { sc =>
      val (two, one, tree) = (run(sc), run(sc, "shuffle.exchanges" -> "one"), run(sc, "topology" -> "tree"))
      assert(two.weights === one.weights && two.weights === tree.weights)
      // All ranks together: 2(N-1) S, and N(N-1) S.
      assert(bytes(two)("shuffle") === steps * 2 * parameters * 4 && !bytes(two).contains("in-process"))
      assert(bytes(two)("shuffle.framing") === steps * 4 * framing)
      assert(bytes(one)("shuffle") === steps * 2 * parameters * 4)
      assert(
        bytes(tree) === Map("task-result" -> steps * 2 * parameters * 4, "broadcast" -> steps * 2 * parameters * 4)
      )
      failsWithoutExecutor(sc)
      (two.weights.toSeq, loss(two), bytes(two))
    }

  test("Spark's own manager between two executors: the bytes of the formula, and the reason when an executor is gone") {
    assert(sorted._1.size === parameters)
  }

  test("another shuffle manager moves the bytes by its own way: all of them, and to the same weights", TakesLong) {
    val expected = sorted // an application of its own, and one at a time
    LocalCluster.run(2, 1, delegated: _*) { sc =>
      val names = LocalCluster.ranks(sc, 2, Settings.resolve(Map.empty, Nil))(_ => SparkTestSupport.shuffleManager._1)
      assert(names.forall(_.endsWith("SparkDLDelegatingShuffleManager")))
      val before = counted(sc)
      val two = run(sc)
      val after = counted(sc)
      assert((two.weights.toSeq, loss(two), bytes(two)) === expected)
      // Every byte that the ranks counted was served by this manager's servers, and nothing else was.
      assert(after._1 - before._1 === bytes(two)("shuffle") + bytes(two)("shuffle.framing"))
      assert(after._2 === before._2)
      awaitNothingHeld(sc)
    }
  }

  private def awaitNothingHeld(sc: SparkContext): Unit = {
    val end = System.nanoTime() + 60000000000L
    while (counted(sc)._3 > 0 && System.nanoTime() < end) Thread.sleep(100)
    assert(counted(sc)._3 === 0)
  }

  private def failsWithoutExecutor(sc: SparkContext): Unit = {
    val endless = TrainingRun.prepare(
      sc,
      Map(
        "workers" -> "2",
        "transport" -> "shuffle",
        "batch" -> "50",
        "epochs" -> "100000",
        "model.hidden" -> "8",
        "evaluate_every" -> "0",
        "results" -> results.toString
      )
    )
    val killer = new Thread(() => {
      val end = System.nanoTime() + 30000000000L
      while (endless.progress.line.contains("step 0") && System.nanoTime() < end) Thread.sleep(100)
      SparkTestSupport.killExecutor(sc)
    })
    killer.start()
    val error = intercept[sparkdlbench.common.RunFailedException](endless.train())
    killer.join()
    assert(error.getMessage.contains("which does not hold its weights and optimiser state"), error.getMessage)
    assert(SparkTestSupport.trackedShuffles === 0)
  }
}
