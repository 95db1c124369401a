package sparkdlbench.results

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.{ConfigurationException, Json}
import sparkdlbench.train.Recorder

import java.nio.file.{Files, Path}
import scala.jdk.CollectionConverters._

class ResultsSuite extends AnyFunSuite {
  private def temporary(): Path = Files.createTempDirectory("results")

  test("JSON keeps the order of fields and writes what JSON cannot say as null") {
    val text =
      Json.line(Json.fields("b" -> 1, "a" -> Seq(1.5, Double.NaN), "c" -> None, "d" -> Some("x"), "e" -> Array(1L)))
    assert(text === """{"b":1,"a":[1.5,null],"c":null,"d":"x","e":[1]}""")
  }

  test("a run's folder has a name with time and run, and events are lines that say their schema") {
    val folder = RunFolder.create(temporary().toString, "my run/1")
    try {
      assert(folder.path.getFileName.toString.matches("""\d{8}-\d{6}-\d{3}-my-run-1"""))
      folder.event("run_start", None, "seed" -> 3)
      folder.event("eval_accuracy", 0.5)
      val lines = Files.readAllLines(folder.path.resolve("events.jsonl")).asScala.map(Json.read)
      assert(lines.map(_.path("key").asText) === Seq("run_start", "eval_accuracy"))
      assert(lines.forall(_.path("schema").asInt == RunFolder.Schema))
      folder.write("summary.json", "{}")
      folder.write("summary.json", "{\"a\":1}")
      assert(Files.readString(folder.path.resolve("summary.json")) === "{\"a\":1}")
      assert(Files.list(folder.path).iterator.asScala.forall(!_.toString.endsWith(".partial")))
    } finally folder.close()
  }

  test(
    "a folder that can be written no longer is left for a spare one, with what was there; without one all is told as lost"
  ) {
    def gone(spare: () => Path): RunFolder = {
      val first = Files.createDirectory(temporary().resolve("run"))
      val folder = new RunFolder(first, spare)
      folder.event("run_start", None)
      folder.write("run.json", "{}")
      Files.createDirectories(
        first.resolve(".summary.json.partial").resolve("below")
      ) // so that nothing can be written there
      folder.write("summary.json", "{\"a\":1}")
      folder
    }
    val folder = gone(() => temporary())
    assert(Files.readString(folder.path.resolve("summary.json")) === "{\"a\":1}")
    assert(
      Files.exists(folder.path.resolve("run.json")) && Files
        .readString(folder.path.resolve("events.jsonl"))
        .contains("run_start")
    )
    assert(folder.warning.get.contains(s"so this run's results are in ${folder.path}."))
    folder.close()
    val lost = gone(() => throw new java.io.IOException("no space left"))
    lost.write("phases.json", "{}")
    assert(lost.warning.get.endsWith("Its weights are still with the caller; save them elsewhere."))
    lost.close()
  }

  test("a folder that cannot be made is the user's to correct") {
    val file = Files.createTempFile("not", "folder")
    val message = intercept[ConfigurationException](RunFolder.create(file.resolve("below").toString, "x")).getMessage
    assert(message.contains(file.toString) && message.contains("--set results=DIR"))
  }

  test("the page holds the run's JSON and cannot be broken out of") {
    val page =
      Page.render(Json.fields("name" -> "</script><b>"), Json.fields("history" -> Seq(Json.fields("epoch" -> 1))))
    assert(page.contains("\"epoch\":1") && !page.contains("</script><b>"))
  }

  test("the page holds the words for what algorithms count") {
    val page = Page.render(Json.fields(), Json.fields("history" -> Nil))
    assert(page.contains("\"left_out\":{\"words\":\"steps that workers left out\"}"))
    assert(page.contains("\"lag\":{") && page.contains("\"often\":true"))
  }

  test("the median of nothing is nothing, of an even number the middle two's mean") {
    assert(Recorder.median(Nil) === None)
    assert(Recorder.median(Seq(3.0, 1.0, 2.0)) === Some(2.0))
    assert(Recorder.median(Seq(4.0, 1.0, 2.0, 3.0)) === Some(2.5))
  }
}
