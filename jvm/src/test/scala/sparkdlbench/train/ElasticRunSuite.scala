package sparkdlbench.train

import com.fasterxml.jackson.databind.JsonNode
import org.apache.hadoop.conf.Configuration
import org.apache.spark.SparkContext
import org.apache.spark.sparkdlbench.{SparkFacts, SparkTestSupport}
import org.scalatest.BeforeAndAfterAll
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.TakesLong
import sparkdlbench.common.{Json, Outcome}
import sparkdlbench.transport.LocalCluster

import java.nio.file.{Files, Paths}
import scala.jdk.CollectionConverters._
import scala.util.Try

/**
 * Runs with a range of workers on real executors: one is decommissioned, and the master starts another in its place. What the run has at its end
 * must be, bit for bit, what runs with those numbers of workers by plan have.
 */
class ElasticRunSuite extends AnyFunSuite with BeforeAndAfterAll {
  private val results = Files.createTempDirectory("results")
  private lazy val sc: SparkContext = {
    val started = LocalCluster.start(2, 1, LocalCluster.prepared :+ ("spark.decommission.enabled" -> "true"): _*)
    started.setLogLevel("ERROR") // a job per step says thousands of lines
    started
  }

  override protected def afterAll(): Unit =
    try LocalCluster.stop(sc)
    finally super.afterAll()

  private val common = Map(
    "model.name" -> "mlp",
    "model.hidden" -> "16",
    "data.source" -> "digits",
    "batch" -> "40",
    "epochs" -> "1000000",
    "evaluate_every" -> "1000000",
    "optimizer.learning_rate" -> "0.01",
    "optimizer.momentum" -> "0.9",
    "results" -> results.toString
  )

  private def folder(): String = Files.createTempDirectory("checkpoints").toUri.toString
  private def store(folder: String) = new CheckpointStore(folder, new Configuration())

  private def weights(folder: String): (Long, Seq[Float]) = {
    val newest = store(folder).newest.get
    val length = newest.parts.flatMap(_.ranges).filter(_.name == "weights").map(_.values.length).sum
    (newest.step, newest.required("weights", length).toSeq)
  }

  private def events(training: TrainingRun): Seq[JsonNode] =
    Files
      .readAllLines(Paths.get(training.folderPath, "events.jsonl"))
      .asScala
      .toSeq
      .filter(_.endsWith("}")) // the last line may be on its way
      .map(Json.read(_))

  private def changes(training: TrainingRun): Seq[JsonNode] =
    events(training).filter(_.path("key").asText == "workers_changed").map(_.path("metadata"))

  private def await(what: String)(done: => Boolean): Unit = {
    val end = System.nanoTime() + 180000000000L
    while (!done && System.nanoTime() < end) Thread.sleep(50)
    assert(done, what)
  }

  private def awaitExecutors(): Unit = {
    SparkTestSupport.wantExecutors(sc, 2)
    await("two executors")(SparkFacts.slots(sc) == 2)
  }

  /**
   * A run whose executor is decommissioned, and that gets another one, ended by hand a checkpoint later.
   *
   * @return
   *   workers and first step of each stretch with one number of them, and the folder of its checkpoints
   */
  private def changing(transport: String): (Seq[(Int, Long)], String) = {
    awaitExecutors()
    val at = folder()
    val own = Map("workers" -> "1..2", "checkpoint.dir" -> at, "checkpoint.every" -> "100", "elastic.settle" -> "1")
    val training = TrainingRun.prepare(sc, common ++ own + ("transport" -> transport))
    assert(training.setup.workers == 2)
    @volatile var ended: Option[Try[RunResult]] = None
    val thread = new Thread(() => ended = Some(Outcome.of(training.train())))
    thread.start()
    try {
      def whileItRuns(what: String)(done: => Boolean): Unit =
        await(what)(if (ended.isEmpty) done else throw new AssertionError(s"the run ended: $ended"))
      whileItRuns("a checkpoint")(store(at).complete.nonEmpty)
      SparkTestSupport.decommissionExecutor(sc)
      whileItRuns("a first change")(changes(training).nonEmpty)
      SparkTestSupport.wantExecutors(sc, 2)
      whileItRuns("a second change")(changes(training).size >= 2)
      whileItRuns("a checkpoint after it")(
        store(at).complete.headOption.exists(_ > changes(training)(1).path("step").asLong + 100)
      )
    } finally {
      training.cancel()
      thread.join(120000)
    }
    assert(!thread.isAlive)
    val told = changes(training)
    assert(told.map(each => each.path("from").asInt -> each.path("to").asInt) == Seq(2 -> 1, 1 -> 2))
    assert(told.head.path("reason").asText.matches("executor \\d+ on 127.0.0.1 is (gone|decommissioned)"), told)
    assert(
      told(1).path("reason").asText.matches("(executor \\d+ on 127.0.0.1 is gone, )?executor \\d+ on 127.0.0.1 came"),
      told
    )
    val numbers = told.map(each => each.path("to").asInt)
    (numbers.zip(firstSteps(training)).foldLeft(Seq(2 -> 0L))(_ :+ _), at)
  }

  /** The step that the attempt after each change goes on from. */
  private def firstSteps(training: TrainingRun): Seq[Long] = {
    val all = events(training).dropWhile(_.path("key").asText != "workers_changed")
    def begins(event: JsonNode) = Set("rank_groups", "attempt_began")(event.path("key").asText)
    all.indices.filter(all(_).path("key").asText == "workers_changed").map { change =>
      all.drop(change).find(begins).get.path("metadata").path("from_step").asLong
    }
  }

  /** The weights after `until` steps by runs with one number of workers each, of which each goes on from the one before. */
  private def planned(stretches: Seq[(Int, Long)], until: Long, transport: String): Seq[Float] = {
    val ends = stretches.drop(1).map(_._2) :+ until
    val last = stretches.map(_._1).zip(ends).foldLeft("") { case (resume, (workers, end)) =>
      val at = folder()
      val own = Map("workers" -> workers.toString, "checkpoint.dir" -> at, "checkpoint.every" -> "1000000")
      val going = Map("transport" -> transport, "max_steps" -> end.toString, "resume" -> resume)
      TrainingRun.prepare(sc, common ++ own ++ going).train(): Unit
      at
    }
    weights(last)._2
  }

  for (
    (transport, why) <- Seq(
      "block-stream" -> "leaves at a checkpoint that is made for it",
      "block-manager" -> "is lost, since Spark gives its executor no further task"
    )
  )
    test(
      s"$transport: the rank of a decommissioned executor $why; another comes; the bits are those of the plan",
      TakesLong
    ) {
      val (stretches, at) = changing(transport)
      assert(stretches.map(_._2) == stretches.map(_._2).distinct.sorted, stretches)
      val (until, found) = weights(at)
      awaitExecutors()
      assert(planned(stretches, until, transport) == found)
    }
}
