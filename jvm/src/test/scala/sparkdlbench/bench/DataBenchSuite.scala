package sparkdlbench.bench

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.Json
import sparkdlbench.data.SourceFixture

import java.nio.file.Files
import scala.jdk.CollectionConverters._

class DataBenchSuite extends AnyFunSuite with SourceFixture {
  test("each sample loads the whole set anew, and leaves nothing") {
    val path = write("bench.csv", (0 until 2000).map(id => s"${id % 3},$id,$id\n").mkString).toString
    val cache = folder.resolve("bench-cache")
    val settings =
      Map("data.source" -> "csv", "data.path" -> path, "data.cache_dir" -> cache.toString, "workers" -> "2")
    val timed = Json.read(DataBench.run(sc, settings, samples = 3, memory = false))
    assert(timed.path("rows").asInt == 2000 && timed.path("held_bytes").asInt == 2000 * 12)
    val (all, prepared) = (numbers(timed, "samples_ms"), numbers(timed, "prepare_ms"))
    assert(all.size == 3 && all.zip(prepared).forall { case (a, b) => a > b && b > 0 })
    assert(Files.list(cache).iterator.asScala.filterNot(_.getFileName.toString.startsWith(".")).isEmpty)
    val sized =
      Json.read(DataBench.run(sc, Map("data.source" -> "digits", "workers" -> "2"), samples = 1, memory = true))
    assert(sized.path("rows").asInt == 1797 && sized.path("peak_bytes").size == 1)
  }

  private def numbers(json: com.fasterxml.jackson.databind.JsonNode, name: String): Seq[Double] =
    json.path(name).elements.asScala.map(_.asDouble).toSeq
}
