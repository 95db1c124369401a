package sparkdlbench.engine.libtorch

import com.fasterxml.jackson.databind.JsonNode
import org.scalatest.Assertions
import sparkdlbench.common.Json
import sparkdlbench.model.{ModelSpec, ParityModels}

import java.nio.charset.StandardCharsets
import java.nio.file.{Files, Paths}
import java.util.concurrent.TimeUnit
import scala.jdk.CollectionConverters._

/** Loss and gradients of an engine's models, computed in a JVM of their own, against PyTorch's. */
private[libtorch] object Parity extends Assertions {
  private val TimeoutSeconds = 400L

  /** Of losses, and of a gradient relative to its tensor's norm. */
  private val Tolerance = 1e-4

  def golden(name: String): JsonNode = Json.read(
    new String(
      Files.readAllBytes(Paths.get(getClass.getResource(s"/golden/models/$name.json").toURI)),
      StandardCharsets.UTF_8
    )
  )

  def compare(found: JsonNode): Unit = {
    val name = found.path("name").asText
    val expected = golden(name)
    def assertNear(what: String, found: JsonNode, expected: JsonNode, limit: Double): Unit = {
      val apart = (found.asDouble - expected.asDouble).abs
      assert(apart <= limit, s"$what: $found, PyTorch $expected, at most $limit apart")
      ()
    }
    def assertLoss(what: String, found: JsonNode, expected: JsonNode): Unit =
      assertNear(s"$name: $what", found, expected, Tolerance * expected.asDouble)
    assertLoss("loss", found.path("loss"), expected.path("loss"))
    assertLoss("test loss", found.path("test_loss"), expected.path("test_loss"))
    val gradients = expected.path("gradient").elements.asScala.toSeq
    val whole = math.sqrt(gradients.map(each => math.pow(each.get(0).asDouble, 2)).sum)
    val names = ModelSpec.fromJson(expected.path("model").toString).layout.map(_.name)
    found.path("gradient").elements.asScala.toSeq.zip(gradients).zip(names).foreach { case ((own, other), tensor) =>
      // Some gradients are zero but for rounding: those of a bias that batch normalisation takes away again.
      val scale = math.max(other.get(0).asDouble, 1e-2 * whole)
      (0 to 2).foreach { part =>
        assertNear(s"$name: gradient of $tensor, $part", own.get(part), other.get(part), Tolerance * scale)
      }
    }
    val losses = expected.path("losses").elements.asScala.toSeq
    val ownLosses = found.path("losses").elements.asScala.toSeq
    assert(losses.size == ParityModels.steps && ownLosses.size == losses.size, name)
    ownLosses.zip(losses).zipWithIndex.foreach { case ((own, other), step) =>
      assertLoss(s"loss of step $step", own, other)
    }
  }

  /** The lines of JSON that `program` prints in a JVM of its own. */
  def probe(settings: Seq[String], jars: Seq[String] = Nil, program: String = "ParityProbe"): Seq[JsonNode] = {
    val output = Files.createTempFile("parity-probe", ".log")
    val command = Seq(
      s"${System.getProperty("java.home")}/bin/java",
      "-XX:TieredStopAtLevel=4", // fingerprints, and BigDL's layers, are loops of Java
      "-Xmx2g",
      "-XX:MaxDirectMemorySize=2g",
      "-cp",
      (System.getProperty("java.class.path") +: jars).mkString(java.io.File.pathSeparator),
      s"sparkdlbench.engine.libtorch.$program"
    ) ++ settings
    val process = new ProcessBuilder(command.asJava).redirectErrorStream(true).redirectOutput(output.toFile).start()
    try {
      val ended = process.waitFor(TimeoutSeconds, TimeUnit.SECONDS)
      val text = new String(Files.readAllBytes(output), StandardCharsets.UTF_8)
      assert(ended && process.exitValue == 0, text)
      text.split('\n').toSeq.filter(_.startsWith("{")).map(Json.read)
    } finally {
      process.destroyForcibly()
      Files.deleteIfExists(output)
    }
  }
}
