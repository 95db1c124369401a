package sparkdlbench.bench

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.ConfigurationException
import sparkdlbench.results.Json

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Files
import scala.jdk.CollectionConverters._

class EngineBenchSuite extends AnyFunSuite {
  private def caseJson(batch: Int, more: String = "[]"): String =
    s"""{"batch": $batch, "hidden": [16], "features": 20, "classes": 5, "threads": 1, "warmup_steps": 2, "steps": 7,
       | "learning_rate": 0.5, "settings": $more}""".stripMargin

  test("one line with a sample for each measured step, the engine's facts, and a loss that training lowered") {
    val out = Files.createTempFile("engine-bench", ".jsonl")
    EngineBench.run(Json.read(caseJson(8)), out)
    val lines = new String(Files.readAllBytes(out), UTF_8).trim.split("\n")
    assert(lines.length == 1)
    val line = Json.read(lines.head)
    val samples = line.path("samples_ms").elements.asScala.map(_.asDouble).toSeq
    assert(samples.size == 7)
    assert(samples.forall(_ > 0))
    assert(line.path("steps").asInt == 1)
    assert(line.path("facts").path("threads").asText == "1")
    assert(line.path("facts").path("last_loss").asDouble < math.log(5))
    Files.delete(out)
  }

  test("an engine that does not exist is refused with the valid ones") {
    val error = intercept[ConfigurationException] {
      EngineBench.run(
        Json.read(caseJson(8, """["engine.name=libtorc"]""")),
        Files.createTempFile("engine-bench", ".jsonl")
      )
    }
    assert(error.getMessage.contains("libtorch"))
  }
}
