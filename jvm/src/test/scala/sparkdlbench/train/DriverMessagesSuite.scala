package sparkdlbench.train

import org.apache.spark.SparkContext
import org.apache.spark.rpc.netty.DriverMessages
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.TakesLong
import sparkdlbench.common.Json
import sparkdlbench.transport.LocalCluster

import java.nio.file.{Files, Path}
import scala.jdk.CollectionConverters._

/** What a training asks of the driver: messages counted at the driver's RPC environment, by kind. */
class DriverMessagesSuite extends AnyFunSuite {

  import DriverMessagesSuite._

  /** Trains for `steps` steps within one epoch; what arrived at the driver meanwhile. */
  private def train(sc: SparkContext, results: Path, transport: String, steps: Int): Counted = {
    val before = DriverMessages.soFar
    val start = System.nanoTime()
    val settings = Map(
      "data.source" -> "synthetic",
      "data.rows" -> "40000",
      "data.test_rows" -> "10",
      "data.shape" -> "4",
      "data.classes" -> "2",
      "model.name" -> "softmax",
      "batch" -> "2",
      "workers" -> "2",
      "epochs" -> "1",
      "max_steps" -> steps.toString,
      "evaluate_every" -> "0",
      "host_local" -> "off",
      "transport" -> transport,
      "results" -> results.toString
    )
    val summary = Json.read(TrainingRun.prepare(sc, settings).train().summary)
    assert(summary.path("final").path("steps").asInt == steps)
    Thread.sleep(1000) // what is sent at a task's end arrives
    val after = DriverMessages.soFar
    val messages = after.map { case (kind, count) => kind -> (count - before.getOrElse(kind, 0L)) }.filter(_._2 > 0)
    val ms = summary.path("final").path("ms_per_step_median").asDouble
    val counted = Counted(steps, (System.nanoTime() - start) / 1e9, messages, ms)
    info(
      f"$transport, $steps steps: $ms%.3f ms per step; ${counted.others.values.sum} messages to the driver, and by time " +
        f"${counted.byTime.values.sum} in ${counted.seconds}%.0f s"
    )
    counted.messages.toSeq.sortBy(-_._2).foreach { case (kind, count) => info(f"$count%8d  $kind") }
    counted
  }

  test("block-stream sends the driver no message whose number grows with the steps", TakesLong) {
    val results = Files.createTempDirectory("driver-messages")
    try
      LocalCluster.run(2, 1, LocalCluster.prepared: _*) { sc =>
        train(
          sc,
          results,
          "block-stream",
          100
        ) // executors come, libraries are loaded, Spark makes its barrier endpoint
        DriverMessages.listen()
        val short = train(sc, results, "block-stream", 1000)
        val long = train(sc, results, "block-stream", 10000)
        for (run <- Seq(short, long); (kind, count) <- run.byTime) {
          val rate = timed(kind.split(' ').last)
          assert(count <= 10 + rate * run.seconds, s"$kind in ${run.seconds} s")
        }
        val all = (short.others.keySet ++ long.others.keySet).toSeq.sorted
        val grown = all.map(kind => kind -> (long.others.getOrElse(kind, 0L) - short.others.getOrElse(kind, 0L)))
        for (run <- Seq(short, long)) assert(run.texts == 2, "one meeting of two ranks")
        // 9,000 steps more; clean-up of earlier runs by the driver's garbage collector may fall into either.
        assert(grown.map(_._2).filter(_ > 0).sum < 60, grown)
        // The same counting sees a transport that does ask the driver: two jobs a step.
        val few = train(sc, results, "block-manager", 20)
        val more = train(sc, results, "block-manager", 60)
        assert(more.others.values.sum - few.others.values.sum > 40 * 4)
      }
    finally {
      val left = Files.walk(results)
      try left.iterator.asScala.toSeq.reverse.foreach(Files.delete)
      finally left.close()
    }
  }
}

private object DriverMessagesSuite {

  /** Kinds whose number follows the clock, each with its bound a second for two executors. */
  val timed = Map(
    "Heartbeat" -> 0.4,
    "BlockManagerHeartbeat" -> 0.4,
    "ExpireDeadHosts" -> 0.2,
    "ReviveOffers" -> 4.0, // the driver to itself: every second, and when a task begins or ends
    "PluginMessage(StepReport)" -> 1.1,
    "PluginMessage(MeetingPoll)" -> 20.0, // of the rank that is ready first, until the other one is
    "PluginMessage(ResourceReport)" -> 1.1 // each executor every two seconds
  )

  final case class Counted(steps: Int, seconds: Double, messages: Map[String, Long], msPerStep: Double) {
    private def isTimed(kind: String): Boolean = timed.contains(kind.split(' ').last)
    val byTime: Map[String, Long] = messages.filter { case (kind, _) => isTimed(kind) }
    val others: Map[String, Long] = messages.filterNot { case (kind, _) => isTimed(kind) }
    val texts: Long = messages.filter { case (kind, _) => kind.endsWith("PluginMessage(MeetingText)") }.values.sum
  }
}
