package sparkdlbench.job

import org.apache.spark.{SparkContext, Success}
import org.apache.spark.scheduler.{SparkListener, SparkListenerTaskEnd, SparkListenerTaskStart}
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.DigitsNets
import sparkdlbench.train.{RunResult, TrainingRun}
import sparkdlbench.transport.LocalCluster

import java.nio.file.{Files, Path}
import java.util.concurrent.atomic.AtomicInteger

/** Tasks of the job-per-step ways that Spark ends and repeats: weights and running statistics to the bits of a run without. */
class RepeatedTasksSuite extends AnyFunSuite {
  private lazy val results: Path = Files.createTempDirectory("results")

  private def run(sc: SparkContext, settings: (String, String)*): RunResult = {
    val small = Map(
      "model.name" -> "file",
      DigitsNets.normal,
      "data.source" -> "digits",
      "batch" -> "400",
      "epochs" -> "10",
      "max_steps" -> "30",
      "optimizer.learning_rate" -> "0.1",
      "workers" -> "2",
      "results" -> results.toString
    )
    TrainingRun.prepare(sc, small ++ settings).train()
  }

  private val ways = Seq(
    Seq("transport" -> "block-manager"),
    Seq("transport" -> "block-manager", "codec" -> "topk"),
    Seq("transport" -> "shuffle"),
    Seq("transport" -> "shuffle", "topology" -> "tree")
  )

  test("ended and repeated tasks change no bit of the weights and of the running statistics") {
    // In one executor, since Spark gives a task that it repeats to any.
    LocalCluster.run(1, 2, "spark.task.maxFailures" -> "4") { sc =>
      for (way <- ways) {
        val undisturbed = run(sc, way: _*)
        val ender = new TaskEnder(sc)
        sc.addSparkListener(ender)
        val disturbed =
          try run(sc, way: _*)
          finally sc.removeSparkListener(ender)
        assert(ender.ended.get >= 5, way)
        assert(disturbed.weights === undisturbed.weights, way)
        assert(disturbed.statistics === undisturbed.statistics, way)
      }
    }
  }

  /** Ends the first attempt of a task in each of every third stage, once the run has begun its steps. */
  private final class TaskEnder(sc: SparkContext) extends SparkListener {
    private val tasks = new AtomicInteger
    val ended = new AtomicInteger

    override def onTaskStart(start: SparkListenerTaskStart): Unit =
      if (tasks.incrementAndGet() > 12 && start.stageId % 3 == 0 && start.taskInfo.attemptNumber == 0) {
        sc.killTaskAttempt(start.taskInfo.taskId, interruptThread = false, "the test repeats it")
        ()
      }

    override def onTaskEnd(end: SparkListenerTaskEnd): Unit =
      if (end.reason != Success) { ended.incrementAndGet(); () }
  }
}
