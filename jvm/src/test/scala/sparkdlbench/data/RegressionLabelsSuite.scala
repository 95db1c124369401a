package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.functions._
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.{ConfigurationException, Json}
import sparkdlbench.config.{RunKeys, Settings}
import sparkdlbench.loss.Target

import java.nio.file.{Files, Paths}

/** Labels that are numbers: from every source that gives such, through the decoded rows. */
class RegressionLabelsSuite extends AnyFunSuite with SourceFixture {
  import SourceFixture.rows

  private lazy val spark = SparkSession.builder().config(sc.getConf).getOrCreate()
  private val regression = "loss.name" -> "mean-squared"
  private val wanted = Seq(-1.5f, 0f, 3.25e7f, 0.1f)

  private def labels(store: RowStore): Seq[Float] = rows(store).map(row => Target.value(row._1))

  private def check(source: DataSource, more: (String, String)*): Unit = {
    val path = more.toMap.getOrElse("data.path", "")
    val test = if (path.isEmpty) "data.test_table" -> more.toMap.apply("data.table") else "data.test_path" -> path
    val (facts, sets) = load(source, more :+ regression :+ test: _*)
    assert(facts.classes == 1 && labels(sets.train) == wanted && labels(sets.test) == wanted)
  }

  test("csv, libsvm, parquet and table") {
    val csv = write("r.csv", wanted.map(label => s"$label,1,2\n").mkString).toString
    check(new Csv, "data.path" -> csv)
    check(new Libsvm, "data.path" -> write("r.svm", wanted.map(label => s"$label 1:1 2:2\n").mkString).toString)
    val frame = spark.createDataFrame(wanted.map(label => (label, 1.0, 2.0))).toDF("y", "a", "b").coalesce(1)
    val path = folder.resolve("r.parquet").toString
    frame.write.parquet(path)
    check(new Parquet, "data.path" -> path, "data.label" -> "y")
    frame.createOrReplaceGlobalTempView("regression")
    check(new Table, "data.table" -> "global_temp.regression", "data.label" -> "y")
  }

  test("a label that is no finite number is a bad record") {
    for (label <- Seq("NaN", "x", "", "1e40")) {
      val path = write("bad.csv", s"1.5,1\n$label,2\n").toString
      assertSays(refusal(new Csv, "data.path" -> path, regression), "the label is '", "finite numbers")
    }
    spark.range(2).select(lit(null).cast("double").as("y"), col("id")).createOrReplaceGlobalTempView("nulls")
    assertSays(
      refusal(new Table, "data.table" -> "global_temp.nulls", "data.label" -> "y", regression),
      "the label is 'null'; labels of a regression (`loss.name`) are finite numbers; leave rows without a label out"
    )
  }

  test("under cross-entropy a label with a fraction names the losses of a regression") {
    val remedy = "a label with a fraction is for regression: set loss.name=mean-squared, absolute or huber"
    assertSays(refusal(new Csv, "data.path" -> write("f.csv", "1.5,1\n0,2\n").toString), "the label is '1.5'", remedy)
    assertSays(refusal(new Libsvm, "data.path" -> write("f.svm", "1.5 1:1\n0 1:2\n").toString), remedy)
  }

  test("keys of classes, and sources that give classes alone, are refused with a regression") {
    val path = write("k.csv", "1.5,1\n0,2\n").toString
    for (key <- Seq("data.classes" -> "3", "data.label_names" -> "a,b"))
      assertSays(refusal(new Csv, "data.path" -> path, regression, key), s"'${key._1}' is '${key._2}'", "Leave")
    val message = intercept[ConfigurationException](RunKeys.resolve(Map(regression))).getMessage
    assertSays(message, "the data source 'digits' gives classes alone", "csv, libsvm, parquet, table")
  }

  test(
    "the manifest says that labels are numbers; folders of classes keep their schema, each is refused for the other task"
  ) {
    val path = write("m.csv", "1,1\n0,2\n1,3\n").toString
    def folderOf(more: (String, String)*) = {
      val source = new Csv
      val chosen = settings(source, ("data.path" -> path) +: more)
      source.prepare(source.qualified(chosen, hadoop), sc)(RecordSource.decodedDir)
    }
    val (classes, numbers) = (folderOf(), folderOf(regression))
    def manifest(folder: String) =
      Json.read(
        new String(
          Files.readAllBytes(
            Paths.get(new org.apache.hadoop.fs.Path(folder).toUri.getPath).resolve(RowsFolder.Manifest)
          ),
          "UTF-8"
        )
      )
    assert(manifest(classes).path("schema").asInt == 1 && manifest(classes).path("labels").asText == "classes")
    assert(manifest(numbers).path("schema").asInt == 2 && manifest(numbers).path("labels").asText == "float32")
    assertSays(
      refusal(new Csv, "data.decoded_dir" -> numbers),
      "are numbers, and loss.name=cross-entropy needs classes"
    )
    assertSays(
      refusal(new Csv, "data.decoded_dir" -> classes, regression),
      "are 10 classes, and loss.name=mean-squared"
    )
  }

  test("a manifest of numbers that has classes, or a label that is none, is refused") {
    val layout = RecordLayout(Seq(1), ValueKind.UInt8, RecordLayout.Regression, "x")
    val good = RowsManifest("csv", layout, Seq(RowsPart("part-0", 6, test = false)), Skipped.none, 1).toJson
    def refused(manifest: String, label: Float): String = {
      val made = Files.createTempDirectory(folder, "numbers")
      Files.writeString(made.resolve(RowsFolder.Manifest), manifest)
      val bytes = java.nio.ByteBuffer.allocate(30).order(java.nio.ByteOrder.LITTLE_ENDIAN).position(6)
      Files.write(made.resolve("part-0"), bytes.putFloat(1f).putFloat(label).array)
      val chosen = Settings.resolve(Map(regression), RunKeys.own ++ (new Csv).keys)
      intercept[ConfigurationException] {
        val found = RowsFolder.require(made.toString, new Configuration(false))
        found.facts(chosen)
        found.open(chosen)
      }.getMessage
    }
    assertSays(refused(good, Float.NaN), "has the label NaN in row 1, no finite number")
    assertSays(
      refused(good.replace("\"classes\" : 1", "\"classes\" : 3"), 1f),
      "valid with schema 2 are 'float32' of 1"
    )
  }

  test("statistics tell the labels' moments") {
    val path = write("s.csv", "1,5\n2,6\n6,7\n").toString
    val chosen = RunKeys.resolve(Map("data.source" -> "csv", "data.path" -> path, regression))
    val found = Json.read(Json.line(DataSetStatistics.of(sc, chosen))).path("train")
    assert(found.path("mean").elements.next().asDouble == 6 && found.path("mean").size == 1)
    assert(found.path("labels").path("mean").asDouble == 3 && found.path("labels").path("max").asDouble == 6)
  }
}
