package sparkdlbench.data

import org.apache.spark.sql.{Row, SparkSession}
import org.apache.spark.sql.functions._
import org.apache.spark.sql.types._
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.loss.Target

import java.awt.image.BufferedImage
import java.io.ByteArrayOutputStream
import javax.imageio.ImageIO
import scala.jdk.CollectionConverters._

/** The sources over DataFrames: `parquet` and `table`. */
class FrameSuite extends AnyFunSuite with SourceFixture {
  import SourceFixture._

  private lazy val spark = SparkSession.builder().config(sc.getConf).getOrCreate()
  private def numbers(count: Int) =
    spark
      .range(count)
      .select(
        (col("id") % 3).cast("int").as("y"),
        col("id").cast("double").as("a"),
        (col("id") * 2).cast("short").as("b.c")
      )

  private def save(name: String, frame: org.apache.spark.sql.DataFrame): String = {
    val path = folder.resolve(name).toString
    frame.coalesce(1).write.mode("overwrite").parquet(path)
    path
  }

  test("numeric columns of Parquet files, once decoded, keep their order and are not decoded again") {
    val path = save("numbers", numbers(20))
    val base = Seq("data.path" -> path, "data.label" -> "y", "data.classes" -> "3")
    val (facts, sets) = load(new Parquet, base: _*)
    assert((facts.trainRows, facts.testRows, facts.shape) == ((16, 4, Seq(2))))
    val wanted = (0 until 20).map(id => (id % 3, Seq(id.toFloat, 2f * id)))
    val (test, train) = wanted.zipWithIndex.partition(row => Set(2, 8, 11, 17)(row._2))
    assert(rows(sets.train) == train.map(_._1) && rows(sets.test) == test.map(_._1))
    val source = new Parquet
    def decoded = source.prepare(source.qualified(settings(source, base), hadoop), sc)(RecordSource.decodedDir)
    assert(decoded == decoded)
    val (_, named) = load(source, base ++ Seq("data.columns" -> "b.c", "data.test_path" -> path): _*)
    assert(rows(named.test).map(_._2) == wanted.map(_._2.drop(1)))
  }

  test("arrays, and labels that are words or flags") {
    val arrays = numbers(6).select(
      when(col("y") === 0, "cat").otherwise("dog").as("label"),
      array(col("a"), lit(1), col("y")).as("x")
    )
    val base = Seq(
      "data.path" -> save("arrays", arrays),
      "data.label" -> "label",
      "data.label_names" -> "dog,cat",
      "data.test_every" -> "3"
    )
    val (facts, sets) = load(new Parquet, base: _*)
    assert((facts.shape, facts.classes) == ((Seq(3), 2)))
    assert(rows(sets.train) == Seq(0, 2, 3, 4).map(id => (if (id % 3 == 0) 1 else 0, Seq(id.toFloat, 1f, id % 3f))))
    val flags = numbers(6).select((col("y") > 0).as("label"), col("a"))
    val (_, flagged) =
      load(new Parquet, "data.path" -> save("flags", flags), "data.label" -> "label", "data.classes" -> "2")
    assert(rows(flagged.train).map(_._1) == Seq(0, 1, 0, 1, 1))
  }

  test("labels that are no classes, and frames without rows, say what to do") {
    def refusal(frame: org.apache.spark.sql.DataFrame): String = {
      frame.createOrReplaceGlobalTempView("unfit")
      intercept[sparkdlbench.common.ConfigurationException](
        load(new Table, "data.table" -> "global_temp.unfit", "data.label" -> "y", "data.classes" -> "3")
      ).getMessage
    }
    val some = numbers(4)
    assert(
      refusal(some.withColumn("y", lit("cat")))
        .contains("the label is 'cat'; with `data.classes` = 3 labels are 0 to 2; number words with StringIndexer")
    )
    assert(
      refusal(some.withColumn("y", lit(1.5))).contains(
        "the label is '1.5'; with `data.classes` = 3 labels are 0 to 2; a label with a fraction is for regression: set loss.name=mean-squared, absolute or huber"
      )
    )
    assert(refusal(some.withColumn("y", lit(7))).contains("set `data.classes` to one more than the largest label"))
    assert(
      refusal(some.withColumn("y", lit(null).cast("int"))).contains("leave rows without a label out: frame.dropna")
    )
    val none = "The table global_temp.unfit has no rows. Look at what fills it (DataFrame.count() is 0)"
    assert(refusal(some.filter(lit(false))).startsWith(none))
    assert(refusal(some.select(col("y"), array(col("a")).as("x")).filter(lit(false))).startsWith(none))
    assert(
      refusal(some.withColumn("a", lit("red")))
        .contains("Turn words into numbers first (StringIndexer and OneHotEncoder")
    )
  }

  test("rows to test on that filters keep nothing of are no reason to take training rows") {
    val all = numbers(9)
    val nothing = Seq(all.filter(lit(false)), all.repartition(3).filter(col("a") < 0), all.limit(0))
    all.createOrReplaceGlobalTempView("all_rows")
    nothing.foreach { frame =>
      frame.createOrReplaceGlobalTempView("no_rows")
      val base = Seq("data.table" -> "global_temp.all_rows", "data.test_table" -> "global_temp.no_rows")
      val said = refusal(new Table, base ++ Seq("data.label" -> "y", "data.classes" -> "3"): _*)
      assertSays(said, "The rows to test on are none. Give a DataFrame (`data.test_table`")
    }
  }

  test("neither the label nor the weight is one of a row's values") {
    val path = save("leaks", numbers(9).withColumn("w", lit(1.0)))
    numbers(9).createOrReplaceGlobalTempView("leaks")
    def refused(source: DataSource, more: (String, String)*) = refusal(source, more :+ ("data.classes" -> "3"): _*)
    val table = Seq("data.table" -> "global_temp.leaks", "data.label" -> "y")
    assertSays(refused(new Table, table :+ ("data.columns" -> "y,a"): _*), "'y', which is the label's (`data.label`)")
    val files = Seq("data.path" -> path, "data.columns" -> "y,a,w")
    // By its default, the first column.
    assertSays(refused(new Parquet, files: _*), "'y', which is the label's")
    val weighted = Seq("data.path" -> path, "data.label" -> "y", "data.weight" -> "w", "data.columns" -> "a,w")
    assertSays(refused(new Parquet, weighted: _*), "'w', which is the weights' (`data.weight`)")
  }

  test("a decoded table is removed with its session, and kept where a folder was named for it") {
    numbers(6).createOrReplaceGlobalTempView("short")
    val source = new Table
    val base = Seq("data.table" -> "global_temp.short", "data.label" -> "y", "data.classes" -> "3")
    def decoded(more: (String, String)*) =
      source.prepare(source.qualified(settings(source, base ++ more), hadoop), sc)(RecordSource.decodedDir)
    def exists(path: String) = {
      val folder = new org.apache.hadoop.fs.Path(path)
      folder.getFileSystem(hadoop).exists(folder)
    }
    val (named, own) = (decoded(), decoded("data.cache_dir" -> ""))
    assert(SessionCopies.of(sc).map(_.toString) == Set(own) && exists(own))
    SessionCopies.remove(sc)
    assert(!exists(own) && exists(named) && SessionCopies.of(sc).isEmpty)
  }

  test("a table in no order is decoded once for a run, and that folder gives the same rows again") {
    numbers(50).repartition(7, rand()).createOrReplaceGlobalTempView("shuffled")
    val source = new Table
    val base = Seq("data.table" -> "global_temp.shuffled", "data.label" -> "y", "data.classes" -> "3")
    val prepared = source.prepare(settings(source, base), sc)
    val first = source.open(prepared, hadoop)
    val again = source.open(
      source.prepare(settings(source, base :+ ("data.decoded_dir" -> prepared(RecordSource.decodedDir))), sc),
      hadoop
    )
    assert(rows(first.train) == rows(again.train))
    val all = rows(first.train) ++ rows(first.test)
    assert(all.sortBy(_._2.head) == (0 until 50).map(id => (id % 3, Seq(id.toFloat, 2f * id))))
    assert(source.prepare(settings(source, base), sc)(RecordSource.decodedDir) != prepared(RecordSource.decodedDir))
  }

  test("the same rows have the same identity however they are cut, others and another order have another") {
    def loaded(frame: org.apache.spark.sql.DataFrame, more: (String, String)*) = {
      frame.createOrReplaceGlobalTempView("identified")
      val base = Seq("data.table" -> "global_temp.identified", "data.label" -> "y", "data.classes" -> "3")
      load(new Table, base ++ more: _*)._1.rowsIdentity
    }
    val whole = loaded(numbers(50).coalesce(1))
    assert(whole.matches("[0-9a-f]{16}"))
    assert(numbers(50).rdd.getNumPartitions > 1 && loaded(numbers(50)) == whole)
    assert(loaded(numbers(50).coalesce(1).orderBy(col("a").desc)) != whole)
    assert(loaded(numbers(51)) != whole)
    // Only the rows that train count.
    numbers(9).createOrReplaceGlobalTempView("tested")
    assert(loaded(numbers(50), "data.test_table" -> "global_temp.tested") == whole)
    val source = new Table
    numbers(50).repartition(3, rand()).createOrReplaceGlobalTempView("identified")
    val base = Seq("data.table" -> "global_temp.identified", "data.label" -> "y", "data.classes" -> "3")
    val prepared = source.prepare(settings(source, base), sc)
    val again = settings(source, Seq("data.decoded_dir" -> prepared(RecordSource.decodedDir)))
    assert(source.inspect(again, hadoop).rowsIdentity == source.inspect(prepared, hadoop).rowsIdentity)
    def files(path: String) = load(new Parquet, "data.path" -> path, "data.label" -> "y")._1.rowsIdentity
    assert(files(save("identified", numbers(50))) == whole, "the session decides in which order files are read")
    assert(files(save("turned round", numbers(50).orderBy(col("a").desc))) != whole)
    val lines = write("identified.csv", "0,1\n1,2\n").toString
    assert(load(new Csv, "data.path" -> lines, "data.test_path" -> lines)._1.rowsIdentity == "", "the file tells")
  }

  test("a bad row is told by its file, one of a table by its place, and neither by bytes") {
    val schema = StructType(Seq(StructField("y", IntegerType), StructField("x", ArrayType(DoubleType))))
    def frame(rows: Row*) = spark.createDataFrame(rows.asJava, schema).coalesce(1)
    val (good, bad) = (Row(0, Seq(1.0, 2.0)), Row(0, Seq(1.0)))
    val path = save("two files", frame(good, good))
    def files = java.nio.file.Paths.get(path).toFile.list.filter(_.endsWith(".parquet")).toSet
    val before = files
    frame(good, bad).write.mode("append").parquet(path)
    val added = (files -- before).head
    val message = refusal(new Parquet, "data.path" -> path, "data.label" -> "y", "data.shape" -> "2")
    assertSays(
      message,
      s"/two files/$added', record ",
      " of the training rows: the row has 1 values",
      "Fix the file"
    )
    assert(!message.contains("byte offset"))
    val (facts, _) = load(
      new Parquet,
      "data.path" -> path,
      "data.label" -> "y",
      "data.shape" -> "2",
      "data.on_error" -> "skip",
      "data.test_every" -> "3"
    )
    assert(facts.skipped.count == 1 && facts.skipped.listed.head.contains(s"/two files/$added'"))
    frame(good, bad).createOrReplaceGlobalTempView("broken")
    val told = refusal(new Table, "data.table" -> "global_temp.broken", "data.label" -> "y")
    assertSays(
      told,
      "Record 1 of partition 0 of the training rows (table global_temp.broken): the row has 1 values",
      "Fix the rows"
    )
    assert(!told.contains("byte offset") && !told.contains("File '"))
  }

  test("numbers that name labels stand for their values") {
    val signs = numbers(6).select(when(col("y") === 0, -1.0).otherwise(1.0).as("label"), col("a"))
    val (_, sets) =
      load(new Parquet, "data.path" -> save("signs", signs), "data.label" -> "label", "data.label_names" -> "-1,+1")
    assert(rows(sets.train).map(_._1) == Seq(0, 1, 0, 1, 1))
  }

  test("binary columns: raw bytes") {
    val schema = StructType(Seq(StructField("y", IntegerType), StructField("x", BinaryType)))
    val raw = Seq(Row(1, Array[Byte](1, -1)), Row(0, Array[Byte](3, 4)))
    val frame = spark.createDataFrame(raw.asJava, schema)
    val path = save("raw", frame)
    val (facts, sets) =
      load(
        new Parquet,
        "data.path" -> path,
        "data.test_path" -> path,
        "data.label" -> "y",
        "data.binary" -> "raw",
        "data.scale" -> "1"
      )
    assert(facts.shape == Seq(2) && facts.heldBytes == 4 * 6)
    assert(rows(sets.train) == Seq((1, Seq(1f, 255f)), (0, Seq(3f, 4f))))
    assertSays(
      refusal(new Parquet, "data.path" -> path, "data.label" -> "y"),
      "'data.shape' is 'auto'",
      "channels,height,width"
    )
  }

  test("binary columns: images, resized") {
    val schema = StructType(Seq(StructField("y", IntegerType), StructField("x", BinaryType)))
    def png(side: Int, colour: Int) = {
      val image = new BufferedImage(side, side, BufferedImage.TYPE_INT_RGB)
      for (y <- 0 until side; x <- 0 until side) image.setRGB(x, y, colour)
      val memory = new ByteArrayOutputStream
      assert(ImageIO.write(image, "png", memory))
      memory.toByteArray
    }
    val images = Seq(Row(1, png(4, 0x336699)), Row(0, png(9, 0xff0001)))
    def path(name: String, rows: Seq[Row]) = save(name, spark.createDataFrame(rows.asJava, schema))
    val whole = path("pictures", images)
    val base = Seq("data.label" -> "y", "data.shape" -> "3,4,4", "data.scale" -> "1")
    val (facts, sets) = load(new Parquet, base ++ Seq("data.path" -> whole, "data.test_path" -> whole): _*)
    assert(facts.shape == Seq(3, 4, 4))
    def planes(colours: Int*) = colours.flatMap(colour => Seq.fill(16)(colour.toFloat))
    assert(rows(sets.train) == Seq((1, planes(0x33, 0x66, 0x99)), (0, planes(0xff, 0, 1))))
    val damaged = path("no pictures", images :+ Row(0, "no image".getBytes("UTF-8")))
    assertSays(refusal(new Parquet, base :+ ("data.path" -> damaged): _*), "record 2", "neither JPEG nor PNG")
  }

  test("weights of rows have mean 1 in each set, held or sharded; what is no weight is told") {
    val frame = numbers(20).withColumn("w", col("a") % 4)
    val base =
      Seq("data.path" -> save("weights", frame), "data.label" -> "y", "data.classes" -> "3", "data.weight" -> "w")
    for (placement <- Seq("replicated", "sharded"); regression <- Seq(false, true)) {
      val task = if (regression) base.filter(_._1 != "data.classes") :+ ("loss.name" -> "huber") else base
      val (facts, sets) = load(new Parquet, task :+ ("data.placement" -> placement): _*)
      assert(facts.shape == Seq(2), "the weight is none of a row's values")
      for (store <- Seq(sets.train, sets.test)) {
        val batch = new BatchReader(store, store.rows).readRange(0, store.rows)
        val ids = (0 until store.rows).map(row => batch.features.get(2 * row).toInt)
        val mean = ids.map(_ % 4).sum.toDouble / ids.size
        ids.zipWithIndex.foreach { case (id, row) =>
          assert(math.abs(Target.weight(batch.labels, row) - id % 4 / mean) < 1e-6)
          assert(Target.weight(store.label(row)) == Target.weight(batch.labels, row))
          assert(
            if (regression) Target.of(batch.labels, row) == (id % 3).toFloat else batch.labels.get(row).toInt == id % 3
          )
        }
      }
    }
    def of(name: String, weight: org.apache.spark.sql.Column) =
      refusal(new Parquet, base :+ ("data.path" -> save(name, numbers(20).withColumn("w", weight))): _*)
    assertSays(of("below", when(col("a") === 1, -1.0).otherwise(1.0)), "record 1", "the weight is -1.0", "data.weight")
    assertSays(of("weightless", when(col("a") === 2, 1.0)), "record 0", "the weight is null")
    assertSays(of("zero", lit(0)), "are 0, so no row counts")
    assertSays(of("text", lit("x")), "'w' (`data.weight`) is of type string")
    assertSays(refusal(new Parquet, base :+ ("data.weight" -> "q"): _*), "'data.weight' names the column 'q'")
    assertSays(refusal(new Parquet, base :+ ("data.weight" -> "y"): _*), "of the label", "of the weights")
  }

  test("nulls, lengths that differ and NaN are bad records; columns that are not there are told") {
    val schema = StructType(Seq(StructField("y", IntegerType), StructField("x", ArrayType(DoubleType))))
    def path(name: String, rows: Row*) = save(name, spark.createDataFrame(rows.asJava, schema))
    val good = Row(0, Seq(1.0, 2.0))
    Seq[(String, Row, String)](
      ("short", Row(0, Seq(1.0)), "the row has 1 values"),
      ("null", Row(0, null), "the value is null"),
      ("label", Row(null, Seq(1.0, 2.0)), "the label is 'null'"),
      ("nan", Row(0, Seq(1.0, Double.NaN)), "value 1 is NaN"),
      ("hole", Row(0, Seq[Any](1.0, null)), "value 1 is NaN")
    ).foreach { case (name, bad, reason) =>
      val message = refusal(new Parquet, "data.path" -> path(name, good, bad), "data.label" -> "y")
      assertSays(message, "record 1", reason)
    }
    val fine = path("fine", good, good)
    assertSays(
      refusal(new Parquet, "data.path" -> fine, "data.label" -> "z"),
      "'data.label' names the column 'z'",
      "y, x"
    )
    assertSays(
      refusal(new Parquet, "data.path" -> fine, "data.label" -> "y", "data.columns" -> "q"),
      "'data.columns' names the column 'q'"
    )
    assertSays(refusal(new Parquet, "data.path" -> fine, "data.label" -> "yy"), "Did you mean 'y'?")
    assertSays(refusal(new Parquet, "data.path" -> folder.resolve("none").toString), "none", "cannot be read")
    assertSays(refusal(new Table, "data.table" -> "nope"), "'nope'", "cannot be read")
    assertSays(refusal(new Table), "'data.table' is not set")
    val text = save("text", spark.range(3).select(col("id").as("y"), lit("a").as("x")))
    assertSays(refusal(new Parquet, "data.path" -> text, "data.label" -> "y"), "not of a kind that can be read")
    val empty = save("empty", numbers(0))
    assertSays(refusal(new Parquet, "data.path" -> empty, "data.label" -> "y"), "has no rows")
  }
}
