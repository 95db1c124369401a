package sparkdlbench.algorithm

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.{ConfigurationException, Json}
import sparkdlbench.{DigitsNets, LocalRuns}

import scala.jdk.CollectionConverters._

/** Shares by speed; that a slow worker gets fewer rows: tests/test_batch_shares.py. */
class BatchSharesSuite extends AnyFunSuite with LocalRuns {
  override protected def common: Map[String, String] =
    Map("transport" -> "block-stream", "workers" -> "3", "epochs" -> "2", "model.hidden" -> "32")

  private val speed = Seq("batch_shares.by" -> "speed", "batch_shares.every" -> "3")

  test("whatever the shares, the steps are the same up to rounding, and all rows of a batch are somebody's") {
    val even = losses(run())
    for (more <- Seq(Nil, Seq("topology" -> "ring"), Seq("clip_norm" -> "100"), Seq("workers" -> "1"))) {
      val result = run(speed ++ more: _*)
      losses(result).zip(even).foreach { case (one, other) => assert(math.abs(one - other) / other < 1e-4, more) }
      val rows = Json.read(result.summary).path("counts").path("share_rows").elements.asScala.map(_.asInt).toSeq
      assert(rows.sum == 50 && rows.forall(_ >= 1), rows)
    }
  }

  test("what they do not go with is refused, with the reason") {
    val refused = Seq(
      Seq("transport" -> "shuffle") -> "makes a Spark job per step",
      Seq("topology" -> "ps", "backup_workers" -> "1") -> "by even shares"
    )
    for ((chosen, why) <- refused) {
      val message = intercept[ConfigurationException](run(speed ++ chosen: _*)).getMessage
      assert(message.contains(why), message)
    }
  }

  test("batch normalisation over all rows is refused: each worker waits in it for the slowest, so none is seen to be") {
    val model = Seq("model.name" -> "file", DigitsNets.normal)
    val sync = model :+ ("model.sync_batch_norm" -> "true")
    val message = intercept[ConfigurationException](prepared(speed ++ sync: _*)).getMessage
    assert(message.contains("batch_shares.by = speed") && message.contains("waits for the slowest"), message)
    prepared(sync: _*)
    prepared(speed ++ model: _*)
    prepared(speed ++ sync :+ ("workers" -> "1"): _*)
  }
}
