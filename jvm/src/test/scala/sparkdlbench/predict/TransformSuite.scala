package sparkdlbench.predict

import org.apache.hadoop.conf.Configuration
import org.apache.spark.ml.linalg.{Vector, Vectors}
import org.apache.spark.sparkdlbench.HeldRow
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.functions._
import org.apache.spark.sql.{DataFrame, Row, SparkSession}
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.LocalRuns
import sparkdlbench.common.ConfigurationException
import sparkdlbench.data.{Digits, RowInput}
import sparkdlbench.engine.libtorch.{EngineFixture, ReferenceNetwork}
import sparkdlbench.model.{Initializers, ModelSpec, RunKeysForTests}
import sparkdlbench.results.SavedModel
import sparkdlbench.train.RunResult

import java.nio.{FloatBuffer, LongBuffer}

/** Trained models applied to DataFrames, in the executor's JVM. */
class TransformSuite extends AnyFunSuite with LocalRuns {
  protected def common: Map[String, String] =
    Map("data.source" -> "digits", "workers" -> "2", "epochs" -> "2", "optimizer.learning_rate" -> "0.1")

  private lazy val spark = SparkSession.builder().config(sc.getConf).getOrCreate()

  /** The test rows as they are stored: pixels from 0 to 16, and the label. */
  private lazy val digits: DataFrame = {
    val rows = new Digits().open(RunKeysForTests.settings(), new Configuration(false)).test
    val (row, label) = (FloatBuffer.allocate(rows.width), LongBuffer.allocate(1))
    val stored = (0 until rows.rows).map { id =>
      rows.read(id, 0, row, label)
      (id, row.array.map(value => math.round(value * 16)).toSeq, label.get(0).toDouble)
    }
    spark.createDataFrame(stored).toDF("id", "pixels", "label").repartition(3)
  }
  private val pixels = PredictSettings(features = Seq("pixels"))

  private def accuracyOf(result: RunResult): Double = Transform(digits, result.model, pixels)
    .agg(avg((col("prediction") === col("label")).cast("double")))
    .head()
    .getDouble(0)

  private val mlp = EngineFixture.mlp(inputs = 3, hidden = "5", classes = 4)

  private def model(spec: ModelSpec = mlp, input: RowInput = RowInput(Seq(3), Seq("a", "b", "c"))): SavedModel = {
    val buffer = new sparkdlbench.vector.FlatBuffer(spec.parameterCount)
    Initializers.fill(spec, 3, buffer)
    SavedModel(spec, buffer.toArray, Array.empty, input)
  }

  private lazy val small = spark
    .range(0, 40, 1, 4)
    .select(
      col("id"),
      (col("id") * 0.1 - 2).as("a"),
      (col("id") % 7).cast("int").as("b"),
      when(col("id") % 2 === 0, 1.5f).otherwise(-0.5f).as("c")
    )

  private def refusal(body: => Any): String = {
    val message = intercept[ConfigurationException](body).getMessage
    assert(!message.contains('\n'), message)
    message
  }

  /** The message of what fails in a task. */
  private def failure(body: => Any): String =
    Iterator.iterate[Throwable](intercept[Exception](body))(_.getCause).takeWhile(_ != null).map(_.getMessage).mkString

  test("scores, probabilities and classes are the reference's, whatever the batch") {
    val (trained, reference) = (model(), new ReferenceNetwork(mlp))
    for (batch <- Seq(1, 3, 256)) {
      val rows = Transform(small, trained, PredictSettings(batch = batch, label = "name")).orderBy("id").collect()
      assert(rows.map(_.getAs[Long]("id")).toSeq == (0L until 40L))
      rows.foreach { row =>
        val values = Array(row.getAs[Double]("a").toFloat.toDouble, row.getAs[Int]("b"), row.getAs[Float]("c").toDouble)
        val wanted = reference.logits(trained.weights.map(_.toDouble), values)
        val scores = row.getAs[Vector]("rawPrediction").toArray
        val probabilities = row.getAs[Vector]("probability").toArray
        scores.zip(wanted).foreach { case (score, other) => assert(math.abs(score - other) < 1e-5) }
        val powers = wanted.map(math.exp)
        probabilities.zip(powers).foreach { case (one, power) => assert(math.abs(one - power / powers.sum) < 1e-5) }
        assert(row.getAs[Double]("prediction") == wanted.indexOf(wanted.max))
        assert(row.getAs[String]("name") == wanted.indexOf(wanted.max).toString)
      }
    }
  }

  test("columns, arrays and vectors, dense or sparse, give the same") {
    val arrays = small.select(col("id"), array("a", "b", "c").as("values"))
    val vectors = spark
      .createDataFrame(arrays.collect().toSeq.map { row =>
        val values = row.getSeq[Double](1).toArray
        val vector: Vector = if (row.getLong(0) % 2 == 0) Vectors.dense(values) else Vectors.dense(values).toSparse
        (row.getLong(0), vector)
      })
      .toDF("id", "values")
    def scores(frame: DataFrame, features: String*) = Transform(frame, model(), PredictSettings(features = features))
      .orderBy("id")
      .collect()
      .map(_.getAs[Vector]("rawPrediction"))
      .toSeq
    assert(scores(arrays, "values") == scores(small))
    assert(scores(vectors, "values") == scores(small))
    assert(scores(small.withColumnRenamed("a", "b.c` d"), "b.c` d", "b", "c") == scores(small))
  }

  test("a run's own preprocessing: the accuracy is that of its evaluation") {
    val settings = Seq("data.normalize" -> "standard")
    for (
      (transport, more) <- Seq(
        "block-stream" -> Seq("model.hidden" -> "16"),
        "block-manager" -> Seq("model.hidden" -> "16", "data.normalize" -> "minmax", "data.crop" -> "6")
      )
    ) {
      val result = run((settings ++ more :+ ("transport" -> transport)): _*)
      assert(result.input.change.nonEmpty)
      assert(math.abs(accuracyOf(result) - accuracy(result)) < 1e-12)
      val read = SavedModel.read(result.saveModels())
      assert(
        accuracyOf(result.copy(spec = read.spec, weights = read.weights, input = read.input)) == accuracyOf(result)
      )
      assert(read.input.change.get.factor.toSeq == result.input.change.get.factor.toSeq)
    }
  }

  test("the frame's own columns stay as they are, whatever their names and kinds") {
    val odd =
      small.withColumn("c0", lit("x")).withColumn("b.c", array(lit(1))).withColumn("twice", lit(null).cast("date"))
    val doubled = odd.select(col("*"), col("c0"))
    val predicted = Transform(doubled, model(), PredictSettings(rawPrediction = "", probability = ""))
    assert(predicted.columns.toSeq == doubled.columns.toSeq :+ "prediction")
    assert(predicted.schema.take(doubled.columns.length).map(_.dataType) == doubled.schema.map(_.dataType))
    val one = predicted.head()
    assert((one.getString(4), one.getSeq[Int](5), one.isNullAt(6), one.getString(7)) == (("x", Seq(1), true, "x")))
    assert(Transform(small.limit(0), model()).count() == 0)
  }

  test("rows keep their own values from batch to batch, of whatever length, also where some are left out") {
    val growing = small
      .withColumn("text", when(col("id") % 4 === 0, lit(null)).otherwise(expr("repeat(string(id), int(id * 7 % 30))")))
      .withColumn("list", expr("sequence(id, id + id % 5)"))
      .withColumn("a", when(col("id") % 3 === 1, lit(null)).otherwise(col("a")))
    val own = growing.columns.map(col).toSeq
    for (batch <- Seq(1, 4, 256)) {
      val left = Transform(growing, model(), PredictSettings(batch = batch, handleInvalid = "skip"))
      assert(left.select(own: _*).collect().toSeq == growing.filter(col("a").isNotNull).collect().toSeq)
      val all = Transform(growing, model(), PredictSettings(batch = batch, handleInvalid = "keep"))
      assert(all.select(own: _*).collect().toSeq == growing.collect().toSeq)
    }
  }

  test("names of classes: a column of them, and metadata that IndexToString reads") {
    val named = model(input = RowInput(Seq(3), Seq("a", "b", "c"), labels = Seq("cat", "dog", "owl", "eel")))
    val predicted = Transform(small, named, PredictSettings(label = "name"))
    val words = new org.apache.spark.ml.feature.IndexToString().setInputCol("prediction").setOutputCol("word")
    assert(words.transform(predicted).filter(col("word") =!= col("name")).count() == 0)
  }

  test("an engine is closed after its partition's last row, so that a coalesced task has one at a time") {
    val trained = model()
    val (engine, threads) = PredictSettings.engine(trained, Map.empty, Map.empty)
    val columns = FeatureColumns.of(small.schema, Nil, trained.input)
    var made = Seq.empty[Predictor]
    val rows = new PredictingRows(
      sc.broadcast(trained),
      small.schema.map(_.dataType),
      columns,
      PredictSettings(batch = 16),
      engine,
      threads
    ) {
      override protected def newPredictor(): Predictor = { made = made :+ super.newPredictor(); made.last }
    }
    val results = rows(small.collect().iterator.map(row => new HeldRow(InternalRow.fromSeq(row.toSeq))))
    def computed(): Int = { made.head.put(0, Array(1f, 2f, 3f)); made.head.scores(1).length }
    assert(results.take(39).size == 39 && computed() == 1)
    assert(results.size == 1)
    intercept[IllegalStateException](computed())
    made.head.close() // as the task's end does
  }

  test("values of arrays and vectors are read alike, however Spark holds them") {
    val (trained, one) = (model(), array("a", "b", "c"))
    val plain = Transform(small, trained).select("rawPrediction").collect().toSeq
    val kinds = Seq("float", "double", "decimal(9,4)").map(kind => one.cast(s"array<$kind>"))
    // What has been through a shuffle is packed; what the optimizer has computed before is not.
    for (kind <- kinds; frame <- Seq(small.select(kind.as("x")), small.select(kind.as("x")).cache()))
      assert(Transform(frame, trained, PredictSettings(Seq("x"))).select("rawPrediction").collect().toSeq == plain)
    val whole = Seq("byte", "short", "int", "bigint").map(kind => lit(Array(1, 0, 3)).cast(s"array<$kind>"))
    val found = whole.map { kind =>
      Transform(small.limit(1).select(kind.as("x")), trained, PredictSettings(Seq("x")))
        .head()
        .getAs[Vector]("rawPrediction")
    }
    assert(found.distinct.size == 1)
  }

  test("a null among an array's values is found, however Spark holds them") {
    for (kind <- Seq("float", "double", "int")) {
      val gap = array(col("a"), when(col("id") =!= 7, col("b")), col("c")).cast(s"array<$kind>")
      val holes = small.select(col("id"), gap.as("x"))
      for (frame <- Seq(holes, holes.repartition(2), holes.cache())) {
        val kept = Transform(frame, model(), PredictSettings(Seq("x"), handleInvalid = "keep"))
        assert(kept.filter(col("prediction").isNull).select("id").collect().toSeq == Seq(Row(7L)), kind)
      }
    }
  }

  test("what is not finite is found at any place") {
    for (length <- 0 to 9) {
      assert(HeldRow.areFinite(Array.fill(length)(Float.MaxValue)))
      for (at <- 0 until length; wrong <- Seq(Float.NaN, Float.PositiveInfinity, Float.NegativeInfinity))
        assert(!HeldRow.areFinite(Array.fill(length)(-Float.MaxValue).updated(at, wrong)))
    }
  }

  test("an application without spark-mllib is told so") {
    val without = new ClassLoader(null) {}
    assert(refusal(Transform.checkMllib(without)).contains("no spark-mllib. Add the module spark-mllib"))
    Transform.checkMllib(getClass.getClassLoader)
  }

  test("rows without valid values end the job, are left out, or are kept") {
    val holes = small
      .withColumn("a", when(col("id") === 7, lit(null)).otherwise(col("a")))
      .withColumn("c", when(col("id") === 9, lit(Float.NaN)).otherwise(col("c")))
    val said = failure(Transform(holes, model()).collect())
    assert(said.contains("Row 7 of partition 0 has no prediction: column 'a' is null. Leave such rows out"), said)
    def rows(rule: String): Seq[Row] = Transform(holes, model(), PredictSettings(handleInvalid = rule)).collect().toSeq
    assert(rows("skip").map(_.getLong(0)).toSet == (0L until 40L).toSet -- Seq(7L, 9L))
    val kept = rows("keep")
    assert(kept.size == 40 && kept.filter(_.isNullAt(4)).map(_.getLong(0)) == Seq(7L, 9L))
    assert(kept.filter(_.isNullAt(6)) == kept.filter(_.isNullAt(4)))
    val short = small.select(col("id"), when(col("id") === 3, array(col("a"))).otherwise(array("a", "b", "c")).as("x"))
    val shorter = failure(Transform(short, model(), PredictSettings(features = Seq("x"))).collect())
    assert(shorter.contains("column 'x' has 1 values, and the model takes rows of 3 values"), shorter)
    // Dense, it would be 16 GiB.
    val wide = spark.createDataFrame(Seq((1, Vectors.sparse(Int.MaxValue, Array(5), Array(1.0))))).toDF("id", "x")
    val wider = failure(Transform(wide, model(), PredictSettings(features = Seq("x"))).collect())
    assert(wider.contains("column 'x' has 2147483647 values"), wider)
  }

  test("what does not fit is refused before any job") {
    assert(refusal(Transform(small.drop("b"), model())).contains("has no column 'b', which the model was trained on"))
    val words = small.withColumn("b", col("b").cast("string"))
    assert(refusal(Transform(words, model())).contains("Column 'b' is of type string"))
    val two = PredictSettings(features = Seq("a", "b"))
    assert(refusal(Transform(small, model(), two)).contains("The features are 2 numeric columns (a, b)"))
    assert(refusal(Transform(small, model(input = RowInput(Seq(3))))).contains("not trained on columns with names"))
    assert(refusal(Transform(small.withColumn("prediction", lit(1)), model())).contains("'prediction' already"))
    assert(refusal(Transform(small, model(), PredictSettings(probability = "prediction"))).contains("the same name"))
    assert(refusal(Transform(small.withColumn("Prediction", lit(1)), model())).contains("'Prediction' already"))
    assert(refusal(Transform(small, model(), PredictSettings(label = "PREDICTION"))).contains("the same name"))
    assert(refusal(Transform(small, model(), PredictSettings(batch = Int.MaxValue))).contains("it must be from 1 to"))
    assert(refusal(PredictSettings(batch = 0)).contains("batch is 0"))
    assert(refusal(PredictSettings(handleInvalid = "drop")).contains("valid are error, skip, keep"))
    assert(refusal(Transform(small, model(), raw = Map("engine.name" -> "nothing"))).contains("'nothing'"))
  }
}
