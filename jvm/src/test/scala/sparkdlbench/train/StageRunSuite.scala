package sparkdlbench.train

import org.apache.hadoop.conf.Configuration
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.LocalRuns
import sparkdlbench.results.Json

import java.nio.file.{Files, Path, Paths}
import scala.jdk.CollectionConverters._

/** Runs of the one-stage shape whose ranks share one process, so one group of ranks that sum in memory. */
class StageRunSuite extends AnyFunSuite with LocalRuns {

  override protected def common: Map[String, String] = Map(
    "transport" -> "block-stream",
    "workers" -> "3",
    "epochs" -> "2",
    "evaluate_every" -> "0",
    "optimizer.momentum" -> "0.9"
  )

  private def file(result: RunResult, name: String) = Json.read(Files.readString(Paths.get(result.folder, name)))

  test("the groups are recorded, and all bytes stay in the process") {
    val together = run()
    val apart = run("in_memory_first" -> "off")
    def groups(result: RunResult) = file(result, "run.json").path("rank_groups").toString
    assert(groups(together) == "[[0,1,2]]" && groups(apart) == "[[0],[1],[2]]")
    assert(file(together, "summary.json").path("bytes").fieldNames.asScala.toSeq == Seq("in-process"))
    // In one process every rank sums its part of the vector in the order of ranks, as `sliced` does.
    assert(together.weights === apart.weights)
    val events = Files.readAllLines(Paths.get(together.folder, "events.jsonl")).asScala.map(Json.read(_))
    val told = events.filter(_.path("key").asText == "rank_groups")
    assert(told.size == 1 && !told.head.path("metadata").path("bits_may_differ").asBoolean)
  }

  test("lossy codecs round nothing where all ranks share a process") {
    assert(run("codec" -> "bf16").weights === run().weights)
  }

  test("a checkpoint every so many seconds; a run that goes on from one ends with the same bits") {
    val folder = Files.createTempDirectory("checkpoints")
    val long = Seq("epochs" -> "1000000", "max_steps" -> "4000")
    val timed = Seq(
      "checkpoint.dir" -> folder.toUri.toString,
      "checkpoint.every" -> "1000000",
      "checkpoint.every_seconds" -> "0.2",
      "checkpoint.keep" -> "1000"
    )
    val start = System.nanoTime()
    val result = run(long ++ timed: _*)
    val passed = (System.nanoTime() - start) / 1e9 // with what lies between the steps, which the clock sees as well
    val store = new CheckpointStore(folder.toUri.toString, new Configuration())
    val made = store.complete.reverse
    val seconds = file(result, "steps.json").elements.asScala.map(_.asDouble).sum / 1000
    assert(made.last == 4000 && made.size >= 3, s"$made in $seconds s")
    assert(made.size <= passed / 0.2 + 2, s"$made in $passed s")
    assert(Files.list(folder).iterator.asScala.size == made.size, "checkpoints of a part of the ranks")
    made.drop(made.size / 2).foreach(step => delete(folder.resolve(f"step-$step%012d")))
    val resumed = run(long :+ ("resume" -> folder.toUri.toString): _*)
    assert(resumed.weights === result.weights && resumed.weights === run(long: _*).weights)
    assert(file(resumed, "steps.json").size == 4000 - made(made.size / 2 - 1))
  }

  test("a folder that holds another run's checkpoints is refused: a retry would go on from those") {
    val folder = Files.createTempDirectory("checkpoints").toUri.toString
    val set = Seq("checkpoint.dir" -> folder, "max_steps" -> "5")
    run(set: _*)
    val message = intercept[sparkdlbench.ConfigurationException](run(set: _*)).getMessage
    assert(message.contains("holds checkpoints of another run (the newest after step 5)"), message)
    // By its path, as a configuration may name it.
    val path = java.nio.file.Paths.get(java.net.URI.create(folder)).toString
    run("checkpoint.dir" -> path, "resume" -> folder, "max_steps" -> "9")
    assert(new CheckpointStore(folder, new Configuration()).newest.get.step == 9)
  }

  private def delete(folder: Path): Unit = {
    Files.list(folder).iterator.asScala.foreach(Files.delete)
    Files.delete(folder)
  }

  test("what codecs left out goes on where ranks can send it again, with another number of ranks too") {
    val folder = Files.createTempDirectory("checkpoints")
    val lossy = Seq("codec" -> "threshold", "in_memory_first" -> "off")
    run(lossy ++ Seq("checkpoint.dir" -> folder.toUri.toString, "max_steps" -> "20"): _*)
    val store = new CheckpointStore(folder.toUri.toString, new Configuration())
    val left = store.newest.get.parts.flatMap(_.ranges).filter(_.name.startsWith("residual"))
    assert(left.size == 3 && left.exists(_.values.exists(_ != 0f)))
    assert(store.newest.get.groups.alone)
    val again = Files.createTempDirectory("checkpoints")
    val more = Seq("resume" -> folder.toUri.toString, "checkpoint.dir" -> again.toUri.toString, "workers" -> "4")
    run(lossy ++ more ++ Seq("max_steps" -> "21"): _*)
    val after = new CheckpointStore(again.toUri.toString, new Configuration()).newest.get
    assert(after.step == 21 && after.parts.size == 4)
  }
}
