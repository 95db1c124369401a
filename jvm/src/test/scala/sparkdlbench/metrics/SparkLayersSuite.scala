package sparkdlbench.metrics

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.Json
import sparkdlbench.train.TrainingRun
import sparkdlbench.transport.LocalCluster

import java.nio.file.{Files, Paths}
import scala.jdk.CollectionConverters._

class SparkLayersSuite extends AnyFunSuite {

  test("the layers of a run add up to its wall clock; a job per step costs launches, one stage does not") {
    val results = Files.createTempDirectory("layers")
    try
      LocalCluster.run(2, 1, LocalCluster.prepared: _*) { sc =>
        val shares = for (transport <- Seq("block-manager", "block-stream")) yield {
          val steps = if (transport == "block-stream") 2000 else 100
          val settings = Map(
            "data.source" -> "digits",
            "model.hidden" -> "64",
            "batch" -> "32",
            "workers" -> "2",
            "epochs" -> "100",
            "max_steps" -> steps.toString,
            "evaluate_every" -> "0",
            "transport" -> transport,
            "results" -> results.toString
          )
          val result = TrainingRun.prepare(sc, settings).train()
          val summary = Json.read(result.summary)
          val spark = summary.path("spark")
          val layers = spark.path("layers_s")
          val sum = layers.asScala.map(_.asDouble).sum
          val total = summary.path("final").path("seconds_total").asDouble
          info(s"$transport: $spark in $total s")
          assert(layers.asScala.forall(_.asDouble >= 0))
          assert(math.abs(sum - total) < 0.02 * total + 0.05, s"$sum s of $total s")
          // What was over before the first step is a part of it, and of the time until then.
          val before = spark.path("before_steps_s")
          for (name <- Seq("launch", "serialisation", "submission"))
            assert(before.path(name).asDouble <= layers.path(name).asDouble + 1e-9, name)
          val early = before.asScala.map(_.asDouble).sum
          val prepared = summary.path("final").path("seconds_prepare").asDouble
          assert(early > 0 && early < prepared + 0.1, s"$early s of $prepared s")
          // The executors came after the context began to start, and before the clock did.
          val start = spark.path("start")
          val context = start.path("context_started_ms").asLong
          val executors = start.path("executors_registered_ms").asLong
          val begun = Json.read(Files.readAllLines(Paths.get(result.folder, "events.jsonl")).get(0)).path("metadata")
          assert(context === sc.startTime && context < executors, start)
          assert(executors <= begun.path("clock_started_ms").asLong, start)
          assert(start.path("cluster_manager_s").asDouble === (executors - context) / 1e3)
          assert(start.path("first_run").asBoolean === (transport == "block-manager"))
          val jobs = spark.path("jobs").asInt
          if (transport == "block-manager") assert(jobs >= 2 * steps && spark.path("tasks").asInt >= 4 * steps)
          else assert(jobs <= 5)
          Seq("launch", "submission", "serialisation").map(layers.path(_).asDouble).sum / steps
        }
        assert(shares.head > 5 * shares(1), shares)
      }
    finally {
      val left = Files.walk(results)
      try left.iterator.asScala.toSeq.reverse.foreach(Files.delete)
      finally left.close()
    }
  }
}
