package sparkdlbench.job

import org.apache.spark.sparkdlbench.{RankShuffles, SparkTestSupport}
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.{ConfigurationException, Json, RunFailedException}
import sparkdlbench.train.RunResult
import sparkdlbench.LocalRuns

import java.io.File
import java.nio.file.{Files, Path}
import scala.jdk.CollectionConverters._

/** Whole runs over Spark shuffles in one JVM; `ShuffleManagerSuite` has those between processes. */
class ShuffleSuite extends AnyFunSuite with LocalRuns {
  private lazy val local: Path = Files.createTempDirectory("spark-local")

  override protected def cores: Int = 8
  override protected def sparkSettings: Seq[(String, String)] = Seq("spark.local.dir" -> local.toString)

  override protected def common: Map[String, String] = Map(
    "data.source" -> "digits",
    "transport" -> "block-manager",
    "model.name" -> "mlp",
    "epochs" -> "1",
    "max_steps" -> "10",
    "optimizer.learning_rate" -> "0.1",
    "optimizer.momentum" -> "0.9"
  )

  private def bytes(result: RunResult, channel: String): Long =
    Json.read(result.summary).path("bytes").path(channel).asLong
  private def shuffleFiles: Seq[String] = {
    // Not Files.walk: files go while it looks.
    def under(folder: File): Seq[File] =
      Option(folder.listFiles).toSeq.flatten.flatMap(file => if (file.isDirectory) under(file) else Seq(file))
    under(local.toFile).map(_.getName).filter(_.startsWith("shuffle_"))
  }

  private val others = collection.mutable.Map.empty[Int, RunResult]

  /** What `block-manager` makes with so many workers, once for all tests. */
  private def byBlockManager(workers: Int): RunResult =
    others.getOrElseUpdate(workers, run("transport" -> "block-manager", "workers" -> workers.toString))

  for (exchanges <- Seq("two", "one"); workers <- 1 to 4)
    test(s"$exchanges exchanges, $workers workers: block-manager's weights and losses, bit for bit") {
      val other = byBlockManager(workers)
      val ours =
        run("transport" -> "shuffle", "shuffle.exchanges" -> exchanges, "workers" -> workers.toString)
      assert(ours.weights === other.weights)
      assert(losses(ours) === losses(other))
      val sent = if (exchanges == "two") 2 * (workers - 1) else workers * (workers - 1)
      assert(bytes(ours, "in-process") === 10L * sent * parameters * 4)
    }

  for (codec <- Seq("bf16", "threshold", "topk"))
    test(
      s"$codec: two exchanges give block-manager's weights, bit for bit, with residuals and full-precision weights"
    ) {
      def trained(transport: String, exchanges: String) =
        run("transport" -> transport, "shuffle.exchanges" -> exchanges, "workers" -> "3", "codec" -> codec)
      val other = trained("block-manager", "two")
      assert(trained("shuffle", "two").weights === other.weights)
      // With one exchange the weights do not travel, so they are not rounded either.
      val one = trained("shuffle", "one")
      assert(losses(one).zip(losses(other)).forall { case (a, b) => math.abs(a - b) / b < 0.05 })
    }

  test("pieces over slice_limit travel cut up and change nothing") {
    val whole = run("transport" -> "shuffle", "workers" -> "3")
    for (exchanges <- Seq("two", "one"))
      assert(
        run(
          "transport" -> "shuffle",
          "workers" -> "3",
          "slice_limit" -> "100",
          "shuffle.exchanges" -> exchanges
        ).weights
          === whole.weights
      )
  }

  test("evaluation between epochs changes nothing") {
    def trained(every: String) =
      run("transport" -> "shuffle", "workers" -> "2", "epochs" -> "2", "max_steps" -> "0", "evaluate_every" -> every)
    val (always, atTheEnd) = (trained("1"), trained("0"))
    assert(always.weights === atTheEnd.weights)
    assert(Json.read(always.summary).path("final").path("test_accuracy").asDouble > 0.7)
  }

  test("the phases add up to the step's time") {
    val summary = Json.read(run("transport" -> "shuffle", "workers" -> "2").summary)
    val phases = summary.path("phases_ms")
    val folder = Files.list(results).iterator.asScala.toSeq.maxBy(_.toString)
    val steps = Json.read(Files.readString(folder.resolve("steps.json"))).elements.asScala.map(_.asDouble).toSeq
    assert(math.abs(phases.elements.asScala.map(_.asDouble).sum / (steps.sum / steps.size) - 1) < 0.02)
    Seq("compute", "encode", "send", "reduce", "update", "scheduler").foreach(phase =>
      assert(phases.path(phase).asDouble > 0, phase)
    )
  }

  for (exchanges <- Seq("two", "one"))
    test(
      s"$exchanges exchanges: after 50 steps there are no more shuffles, files and map outputs than after the first"
    ) {
      val counts = collection.mutable.ArrayBuffer.empty[(Int, Int)]
      val listener = new org.apache.spark.scheduler.SparkListener {
        // At the start of each job the shuffles of the steps before are what counts.
        override def onJobStart(start: org.apache.spark.scheduler.SparkListenerJobStart): Unit =
          counts += ((SparkTestSupport.trackedShuffles, shuffleFiles.size))
      }
      SparkTestSupport.awaitEvents(sc)
      sc.addSparkListener(listener)
      try {
        run(
          "transport" -> "shuffle",
          "workers" -> "2",
          "epochs" -> "2",
          "max_steps" -> "55",
          "shuffle.exchanges" -> exchanges
        )
        SparkTestSupport.awaitEvents(sc)
      } finally sc.removeSparkListener(listener)
      assert(counts.size > 55)
      // A job's own shuffles (2) and the carried one.
      assert(counts.map(_._1).max <= 4, counts)
      // Files go a little later, but not later and later: 55 steps write some 330 (one exchange) or 660 (two).
      assert(counts.map(_._2).max <= (RankShuffles.RemovalsAtOnce + 4) * 6, counts)
      assert(SparkTestSupport.trackedShuffles === 0)
      val end = System.nanoTime() + 60000000000L
      while (shuffleFiles.nonEmpty && System.nanoTime() < end) Thread.sleep(50)
      assert(shuffleFiles.isEmpty)
    }

  test("a step is one job of as many stages as it has exchanges") {
    for ((exchanges, stages) <- Seq("two" -> 2, "one" -> 1)) {
      val seen = collection.mutable.ArrayBuffer.empty[Int]
      val listener = new org.apache.spark.scheduler.SparkListener {
        override def onJobStart(start: org.apache.spark.scheduler.SparkListenerJobStart): Unit =
          seen += start.stageInfos.size
        override def onStageCompleted(end: org.apache.spark.scheduler.SparkListenerStageCompleted): Unit =
          seen += -end.stageInfo.numTasks
      }
      SparkTestSupport.awaitEvents(sc)
      sc.addSparkListener(listener)
      def jobs(steps: String): (Int, Int) = {
        seen.clear()
        val settings = Seq("transport" -> "shuffle", "workers" -> "2", "shuffle.exchanges" -> exchanges)
        run(settings :+ ("max_steps" -> steps): _*)
        SparkTestSupport.awaitEvents(sc)
        (seen.count(_ > 0), -seen.filter(_ < 0).sum)
      }
      try {
        val (short, long) = (jobs("4"), jobs("14"))
        assert(long._1 - short._1 === 10, s"$exchanges: jobs")
        assert(long._2 - short._2 === 10 * stages * 2, s"$exchanges: tasks")
      } finally sc.removeSparkListener(listener)
    }
  }

  test("a cancelled run leaves no shuffle") {
    val cancelled = prepared("transport" -> "shuffle", "workers" -> "2", "epochs" -> "500", "max_steps" -> "0")
    val killer = new Thread(() => { Thread.sleep(1000); cancelled.cancel() })
    killer.start()
    intercept[RunFailedException](cancelled.train())
    killer.join()
    assert(SparkTestSupport.trackedShuffles === 0)
  }

  for ((workers, depth, levels) <- Seq((1, 2, 0), (3, 2, 0), (6, 2, 1), (8, 3, 1)))
    test(s"tree of $workers workers, depth $depth: one worker's weights, sums in one order, bytes as stated") {
      // Sums of other shape round otherwise; the same tree gives the same bits.
      val settings =
        Seq(
          "transport" -> "shuffle",
          "topology" -> "tree",
          "workers" -> workers.toString,
          "tree.depth" -> depth.toString
        )
      val (first, second) = (run(settings: _*), run(settings: _*))
      assert(first.weights === second.weights)
      val one = byBlockManager(1)
      val apart = first.weights.zip(one.weights).map { case (a, b) => math.abs(a - b) }.max
      assert(apart < 1e-5, s"weights differ by $apart")
      val aggregators = sparkdlbench.topology.Tree.levels(workers, depth)
      assert(aggregators.size === levels)
      assert(bytes(first, "in-process") === 10L * (workers + aggregators.sum + 1) * parameters * 4)
      assert(SparkTestSupport.trackedShuffles === 0)
    }

  test("a tree without aggregators sums in rank order, as sliced does") {
    val sliced = run("transport" -> "shuffle", "workers" -> "4")
    val tree = run("transport" -> "shuffle", "workers" -> "4", "topology" -> "tree")
    assert(tree.weights === sliced.weights && losses(tree) === losses(sliced))
    val rounded = run("transport" -> "shuffle", "workers" -> "4", "topology" -> "tree", "codec" -> "bf16")
    assert(bytes(rounded, "in-process") * 2 === bytes(tree, "in-process"))
  }

  test("topologies that it cannot carry are refused with the ones that it can") {
    val error = intercept[ConfigurationException](prepared("transport" -> "shuffle", "topology" -> "ring"))
    assert(error.getMessage.contains("sliced"))
  }
}
