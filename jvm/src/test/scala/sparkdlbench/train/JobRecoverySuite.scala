package sparkdlbench.train

import com.fasterxml.jackson.databind.JsonNode
import org.apache.hadoop.conf.Configuration
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.LocalRuns
import sparkdlbench.common.{ConfigurationException, Json}

import java.nio.file.{Files, Paths}
import scala.jdk.CollectionConverters._

/** Checkpoints of the job-per-step shape, between the ways of that shape and with the one-stage shape; all ranks in one process. */
class JobRecoverySuite extends AnyFunSuite with LocalRuns {
  override protected def common: Map[String, String] = Map(
    "transport" -> "block-manager",
    "workers" -> "3",
    "epochs" -> "1",
    "max_steps" -> "12",
    "optimizer.momentum" -> "0.9"
  )
  override protected def cores: Int = 4

  private def folder(): String = Files.createTempDirectory("checkpoints").toUri.toString
  private def store(folder: String) = new CheckpointStore(folder, new Configuration())
  private def history(result: RunResult): JsonNode = Json.read(result.summary).path("history")

  private val ways: Seq[(String, Seq[(String, String)])] = Seq(
    "block-manager" -> Nil,
    "shuffle, two exchanges" -> Seq("transport" -> "shuffle"),
    "shuffle, one exchange" -> Seq("transport" -> "shuffle", "shuffle.exchanges" -> "one"),
    "shuffle, tree" -> Seq("transport" -> "shuffle", "topology" -> "tree")
  )

  for (
    (name, way) <- ways; codec <- Seq("fp32", "bf16", "threshold") if !(name.contains("tree") && codec == "threshold")
  )
    test(
      s"$name, $codec: a run that goes on from a checkpoint in an epoch ends with the bits of one that was not stopped"
    ) {
      val at = folder()
      val settings = way :+ ("codec" -> codec)
      val whole = run(settings: _*)
      run(settings ++ Seq("checkpoint.dir" -> at, "checkpoint.every" -> "7", "max_steps" -> "8"): _*)
      Files
        .walk(Paths.get(java.net.URI.create(at)).resolve("step-000000000008"))
        .iterator
        .asScala
        .toSeq
        .reverse
        .foreach(Files.delete)
      assert(store(at).complete == Seq(7L))
      val resumed = run(settings :+ ("resume" -> at): _*)
      assert(resumed.weights === whole.weights)
      assert(history(resumed).path(0).path("train_loss") == history(whole).path(0).path("train_loss"))
    }

  test("one format: a run of one shape goes on from a checkpoint of the other, and of another number of workers") {
    val at = folder()
    run("checkpoint.dir" -> at, "max_steps" -> "6")
    val stage = Seq("transport" -> "tcp", "in_memory_first" -> "off", "topology" -> "sliced")
    val (byJobs, byStage) = (run("resume" -> at), run(stage :+ ("resume" -> at): _*))
    assert(byJobs.weights === byStage.weights)
    for (other <- Seq("workers" -> "2", "topology" -> "tree")) {
      val resumed = run("transport" -> "shuffle", "resume" -> at, other)
      val largest = resumed.weights.zip(byJobs.weights).map { case (a, b) => math.abs(a - b) }.max
      assert(largest < 1e-3, other)
    }
    val staged = folder()
    run(stage ++ Seq("checkpoint.dir" -> staged, "max_steps" -> "6"): _*)
    assert(run("resume" -> staged).weights === byStage.weights)
  }

  test("checkpoints by time, as many as are to be kept, and one after the last step") {
    val at = folder()
    val timed = Seq("checkpoint.every" -> "1000000", "checkpoint.every_seconds" -> "0.0001", "checkpoint.keep" -> "3")
    run(timed :+ ("checkpoint.dir" -> at): _*)
    assert(store(at).complete == Seq(12L, 11L, 10L))
    assert(store(at).newest.get.parts.map(_.rank) == Seq(0, 1, 2))
  }

  test("a checkpoint of another optimiser is refused, with what it lacks") {
    val at = folder()
    run("checkpoint.dir" -> at, "max_steps" -> "3", "optimizer.momentum" -> "0")
    val message = intercept[ConfigurationException](run("resume" -> at)).getMessage
    assert(message.contains("holds no 'optimizer."), message)
  }

  test("a rank that cannot read what the driver could is named, with the key to set") {
    val place = CheckpointPlace(folder(), "checkpoint.dir", 5, ofThisRun = false)
    val message = intercept[ConfigurationException](place.read(new Configuration(), "rank 1 on host a")).getMessage
    assert(message.contains("rank 1 on host a cannot read it") && message.contains("Set checkpoint.dir"), message)
  }
}
