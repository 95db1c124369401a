package sparkdlbench.data

import com.fasterxml.jackson.databind.JsonNode
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.bench.DataStatistics
import sparkdlbench.common.{ConfigurationException, Json}

import java.nio.file.{Files, Paths}
import scala.jdk.CollectionConverters._

class StatisticsSuite extends AnyFunSuite with SourceFixture {
  private def run(settings: (String, String)*): JsonNode =
    Json.read(DataStatistics.run(sc, Map("results" -> folder.resolve("results").toString) ++ settings))
  private def numbers(node: JsonNode): Seq[Double] = node.elements.asScala.map(_.asDouble).toSeq

  test("minimum, maximum, mean and deviation of each column, whatever the parts") {
    val random = new scala.util.Random(3)
    val table =
      Seq.fill(500)(Seq(random.nextInt(3).toDouble, 1e6 + random.nextGaussian(), random.nextInt(100).toDouble))
    val path = write("stats.csv", table.map(row => s"${row.head.toInt},${row(1)},${row(2)}\n").mkString).toString
    val results = Seq("1024", "5000", "1000000").map { bytes =>
      run(
        "data.source" -> "csv",
        "data.path" -> path,
        "data.classes" -> "3",
        "data.split_bytes" -> bytes,
        "name" -> s"by $bytes"
      )
    }
    assert(results.map(_.path("parts").asInt).distinct.size == 3)
    results.foreach { result =>
      val train = result.path("train")
      assert(train.path("rows").asInt == 500 && result.path("test").isNull)
      (1 to 2).foreach { column =>
        val values = table.map(_(column).toFloat.toDouble)
        val mean = values.sum / 500
        val deviation = math.sqrt(values.map(value => (value - mean) * (value - mean)).sum / 500)
        assert(
          numbers(train.path("min"))(column - 1) == values.min && numbers(train.path("max"))(column - 1) == values.max
        )
        assert(math.abs(numbers(train.path("mean"))(column - 1) / mean - 1) < 1e-12)
        assert(math.abs(numbers(train.path("standard_deviation"))(column - 1) / deviation - 1) < 1e-9)
      }
      (0 to 2).foreach(label => assert(train.path("labels").path(label.toString).asInt == table.count(_.head == label)))
      val file = Paths.get(result.path("folder").asText, DataStatistics.File)
      assert(Json.read(Files.readString(file)).path("train") == train)
    }
  }

  test("sources that every executor opens whole, too; values as stored") {
    val digits = run("data.source" -> "digits")
    assert(digits.path("train").path("rows").asInt == 1438 && digits.path("test").path("rows").asInt == 359)
    assert(numbers(digits.path("train").path("max")).max == 1.0)
  }

  test("whatever a run does to rows and values changes nothing: test rows are not cropped") {
    val changes = Seq(
      "data.share" -> "0.1",
      "data.normalize" -> "standard",
      "data.padding" -> "1",
      "data.crop" -> "4",
      "data.flip" -> "true"
    )
    val synthetic = Seq("data.rows" -> "40", "data.test_rows" -> "10", "data.shape" -> "2,5,6")
    for ((source, more) <- Seq("digits" -> Nil, "synthetic" -> synthetic)) {
      val set = ("data.source" -> source) +: more
      val (whole, changed) = (run(set: _*), run(set ++ changes: _*))
      Seq("train", "test").foreach(part => assert(changed.path(part) == whole.path(part), s"$part of $source"))
      assert(numbers(changed.path("test").path("mean")).size == (if (source == "digits") 64 else 60))
    }
  }

  test("a row of weight 2 counts twice in the moments and one of weight 0 not, in one part or in several") {
    val random = new scala.util.Random(9)
    val weighted = Seq.tabulate(90)(at => (Array(random.nextFloat() + 1e3f, random.nextFloat()), (at % 3).toDouble))
    def moments(rows: Seq[(Array[Float], Double)]): Moments = {
      val running = new RunningMoments(2)
      rows.foreach { case (row, weight) => running.add(row, 0, weight) }
      running.result
    }
    val twice = moments(weighted.flatMap { case (row, weight) => Seq.fill(weight.toInt)(row -> 1.0) })
    val parts = weighted.filter(_._2 == 0).grouped(7).toSeq ++ weighted.grouped(7)
    Seq(moments(weighted), parts.map(moments).foldLeft(Moments.none)(_ merge _)).foreach { found =>
      assert(found.weight == twice.weight && found.low.toSeq == twice.low.toSeq && found.high.toSeq == twice.high.toSeq)
      found.mean.zip(twice.mean).foreach { case (a, b) => assert(math.abs(a - b) < 1e-9) }
      found.deviation.zip(twice.deviation).foreach { case (a, b) => assert(math.abs(a - b) < 1e-9) }
    }
  }

  test("bad records fail, or are counted") {
    val path = write("bad-stats.csv", "0,1\n0,x\n1,3\n").toString
    val base = Seq("data.source" -> "csv", "data.path" -> path)
    assert(intercept[ConfigurationException](run(base: _*)).getMessage.contains("column 1 is 'x'"))
    val result = run(base :+ ("data.on_error" -> "skip"): _*)
    assert(result.path("skipped").path("count").asInt == 1 && numbers(result.path("train").path("mean")) == Seq(2.0))
    val empty = write("nothing.svm", "# nothing\n").toString
    val message = intercept[ConfigurationException](
      run("data.source" -> "libsvm", "data.path" -> empty, "data.shape" -> "3")
    ).getMessage
    assert(message.contains("has no rows"))
  }
}
