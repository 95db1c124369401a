package sparkdlbench.bench

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.{ConfigurationException, Json}

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path}
import java.nio.{ByteBuffer, ByteOrder}
import scala.jdk.CollectionConverters._

class EngineBenchSuite extends AnyFunSuite {
  private def caseJson(batch: Int, more: String = "[]"): String =
    s"""{"batch": $batch, "rows": 20, "hidden": [16], "features": 20, "classes": 5, "threads": 1, "warmup_steps": 2, "steps": 7,
       | "learning_rate": 0.5, "settings": $more}""".stripMargin

  /** 20 rows of `features` values: row r is r everywhere, its label r % 5. */
  private def rows(features: Int = 20): Path = {
    val folder = Files.createTempDirectory("engine-bench-rows")
    val (x, y) = (
      ByteBuffer.allocate(20 * features * 4).order(ByteOrder.LITTLE_ENDIAN),
      ByteBuffer.allocate(20 * 8).order(ByteOrder.LITTLE_ENDIAN)
    )
    for (row <- 0 until 20) {
      (0 until features).foreach(_ => x.putFloat(row / 20f))
      y.putLong((row % 5).toLong)
    }
    Files.write(folder.resolve("features.f32"), x.array)
    Files.write(folder.resolve("labels.i64"), y.array)
    folder
  }

  test("one line with a sample for each measured step, the engine's facts, and a loss that training lowered") {
    val out = Files.createTempFile("engine-bench", ".jsonl")
    EngineBench.run(rows(), Json.read(caseJson(20)), out)
    val lines = new String(Files.readAllBytes(out), UTF_8).trim.split("\n")
    assert(lines.length == 1)
    val line = Json.read(lines.head)
    val samples = line.path("samples_ms").elements.asScala.map(_.asDouble).toSeq
    assert(samples.size == 7)
    assert(samples.forall(_ > 0))
    assert(line.path("steps").asInt == 1)
    assert(line.path("facts").path("threads").asText == "1")
    assert(line.path("facts").path("rows").asText == "20")
    assert(line.path("facts").path("last_loss").asDouble < line.path("facts").path("first_loss").asDouble)
    Files.delete(out)
  }

  test("steps walk over all whole batches of the rows in their order, and begin again") {
    val walked = new TrainingRows(rows(2), 20, 2, 8)
    val seen = (0L until 4L).map { step =>
      val batch = walked.batchOf(step)
      assert(batch.rows == 8)
      (0 until 8).map(row => (math.round(batch.features.get(2 * row + 1) * 20), batch.labels.get(row)))
    }
    def expected(first: Int) = (first until first + 8).map(row => (row, (row % 5).toLong))
    // Rows 16 to 19 make no whole batch.
    assert(seen == Seq(expected(0), expected(8), expected(0), expected(8)))
  }

  test("files that are not the case's rows are refused, and so are fewer rows than a batch") {
    val short = intercept[ConfigurationException](new TrainingRows(rows(), 21, 20, 8))
    assert(short.getMessage.contains("features.f32 has 1600 bytes; 21 rows are 1680"))
    val few = intercept[ConfigurationException](new TrainingRows(rows(), 20, 20, 21))
    assert(few.getMessage.contains("at least 21 rows"))
    // A case trains on its own batch, not on a part of it.
    val own = intercept[ConfigurationException] {
      EngineBench.run(rows(), Json.read(caseJson(21)), Files.createTempFile("engine-bench", ".jsonl"))
    }
    assert(own.getMessage.contains("at least 21 rows"))
  }

  test("an engine that does not exist is refused with the valid ones") {
    val error = intercept[ConfigurationException] {
      EngineBench.run(
        rows(),
        Json.read(caseJson(8, """["engine.name=libtorc"]""")),
        Files.createTempFile("engine-bench", ".jsonl")
      )
    }
    assert(error.getMessage.contains("libtorch"))
  }
}
