package sparkdlbench.engine.libtorch

import com.fasterxml.jackson.databind.JsonNode
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.Json
import sparkdlbench.model.ParityModels

import scala.jdk.CollectionConverters._

/** The same as `ParitySuite` for BigDL's layers, which exist on Spark 3.5 alone. */
class BigDlParitySuite extends AnyFunSuite {
  private val engine = Seq("engine.name=bigdl")

  private def jars: Seq[String] = {
    assume(BigDlJars.fit, "BigDL's jars are for Scala 2.12, on Spark 3.5")
    val found = BigDlJars.found
    assume(found.nonEmpty, "BigDL's jars are not here: sparkdl-bench peers install bigdl")
    found
  }

  test("loss, gradients and 20 losses are PyTorch's") {
    val lines = Parity.probe(engine, jars)
    assert(lines.head.path("engine").asText == "bigdl" && lines.head.path("bigdl.jar").asText.contains("2.4.0"))
    assert(lines.tail.map(_.path("name").asText) == ParityModels.all.map(_.name))
    lines.tail.foreach(Parity.compare)
  }

  test("batches of other sizes, rows by their ids, running statistics: the same as libtorch's") {
    val found = Parity.probe(engine, jars, "BatchesProbe")
    val expected = BatchesProbe.measure(Nil).map(result => Json.read(Json.line(result)))
    assert(found.map(_.path("name").asText) == expected.map(_.path("name").asText))
    found.zip(expected).foreach { case (own, other) =>
      BatchesProbe.numbers.foreach(what => assertNear(own.path("name").asText, what, own.path(what), other.path(what)))
    }
  }

  private def assertNear(model: String, what: String, found: JsonNode, expected: JsonNode): Unit = {
    val (own, other) = (found.elements.asScala.toSeq, expected.elements.asScala.toSeq)
    assert(own.size == other.size && other.nonEmpty, s"$model: $what")
    val scale = other.map(_.asDouble.abs).max
    own.zip(other).zipWithIndex.foreach { case ((one, two), index) =>
      val apart = (one.asDouble - two.asDouble).abs
      assert(one.isNumber && apart <= 1e-4 * scale, s"$model: $what, number $index: $one, libtorch $two")
    }
  }
}
