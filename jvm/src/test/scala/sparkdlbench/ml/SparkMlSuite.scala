package sparkdlbench.ml

import org.apache.logging.log4j.core.appender.AbstractAppender
import org.apache.logging.log4j.core.config.{Configurator, Property}
import org.apache.logging.log4j.core.{LogEvent, Logger}
import org.apache.logging.log4j.{Level, LogManager}
import org.apache.spark.ml.classification.LogisticRegression
import org.apache.spark.ml.evaluation.{MulticlassClassificationEvaluator, RegressionEvaluator}
import org.apache.spark.ml.feature.{IndexToString, StringIndexer, VectorAssembler}
import org.apache.spark.ml.linalg.{SQLDataTypes, Vector}
import org.apache.spark.ml.tuning.{CrossValidator, ParamGridBuilder}
import org.apache.spark.ml.{Estimator, Model, Pipeline, PipelineModel, PipelineStage}
import org.apache.spark.sql.functions.{array, col, lit, rand, when}
import org.apache.spark.sql.{DataFrame, SparkSession}
import org.scalatest.funsuite.AnyFunSuite
import sparkdl_bench.ml.{SparkDLClassificationModel, SparkDLClassifier, SparkDLRegressionModel, SparkDLRegressor}
import sparkdlbench.LocalSpark
import sparkdlbench.common.{ConfigurationException, Json}

import java.nio.file.{Files, Path}
import java.util.concurrent.ConcurrentLinkedQueue
import scala.jdk.CollectionConverters._

/** The estimators of a JVM team beside Spark ML's own: the same idioms on the same rows. */
class SparkMlSuite extends AnyFunSuite with LocalSpark {
  private lazy val spark = SparkSession.builder().config(sc.getConf).getOrCreate()
  private lazy val folder: Path = Files.createTempDirectory("spark-ml-suite")

  /** Points around three centres, and the names of these. */
  private lazy val words: DataFrame = {
    val random = new scala.util.Random(7)
    val centres = Seq(("cat", 0.0, 0.0), ("dog", 2.0, 0.0), ("owl", 0.0, 2.0))
    val rows = (0 until 300).map { _ =>
      val (name, x, y) = centres(random.nextInt(3))
      (x + random.nextGaussian() * 0.4, y + random.nextGaussian() * 0.4, name)
    }
    spark.createDataFrame(rows).toDF("x", "y", "kind").cache()
  }
  private val indexer = new StringIndexer().setInputCol("kind").setOutputCol("label")
  private val assembler = new VectorAssembler().setInputCols(Array("x", "y")).setOutputCol("features")
  private lazy val rows: DataFrame = assembler.transform(indexer.fit(words).transform(words)).cache()

  private def classifier(): SparkDLClassifier = new SparkDLClassifier()
    .setModel(Map("name" -> "mlp", "hidden" -> "8"))
    .setBatch(32)
    .setEpochs(4)
    .setSettings(Map("learning_rate" -> "0.5", "seed" -> "3", "results" -> folder.resolve("results").toString))

  private lazy val trained: SparkDLClassificationModel = classifier().fit(rows)

  private def regressor(): SparkDLRegressor = new SparkDLRegressor()
    .setModel(classifier().getModel)
    .setBatch(32)
    .setEpochs(10)
    .setSettings(classifier().getSettings + ("learning_rate" -> "0.05"))

  private def accuracy(frame: DataFrame): Double =
    new MulticlassClassificationEvaluator().setMetricName("accuracy").evaluate(frame)

  /** What NetTraining says in the log meanwhile. */
  private def logged(what: => Any): Seq[String] = {
    val lines = new ConcurrentLinkedQueue[String]
    val name = NetTraining.getClass.getName.stripSuffix("$")
    Configurator.setLevel(name, Level.WARN)
    val logger = LogManager.getLogger(name).asInstanceOf[Logger]
    val appender = new AbstractAppender("suite", null, null, true, Property.EMPTY_ARRAY) {
      override def append(event: LogEvent): Unit = lines.add(event.getMessage.getFormattedMessage): Unit
    }
    appender.start()
    logger.addAppender(appender)
    try what
    finally logger.removeAppender(appender)
    lines.asScala.toSeq
  }

  private def refused(what: => Any): String = intercept[ConfigurationException](what).getMessage

  test("columns and their types are those of Spark ML's classifiers, and so are copies") {
    val own = new LogisticRegression().setMaxIter(3)
    def types(frame: DataFrame) = frame.schema.fields.map(field => field.name -> field.dataType).toSeq
    val (theirs, ours) = (own.fit(rows), trained)
    assert(types(ours.transform(rows)) == types(theirs.transform(rows)))
    assert(
      types(ours.transform(rows)).map(_._1) == ours.transformSchema(rows.schema).fieldNames.toSeq &&
        classifier().transformSchema(rows.schema).fieldNames.toSet == ours.transformSchema(rows.schema).fieldNames.toSet
    )
    assert(accuracy(ours.transform(rows)) > 0.9)
    assert((ours.numClasses, ours.numFeatures) == ((3, 2)))
    assert(ours.labels.toSet == Set("cat", "dog", "owl"))
    val estimator = classifier()
    val copied = estimator.copy(org.apache.spark.ml.param.ParamMap(estimator.predictionCol -> "other"))
    assert(
      (copied.getPredictionCol, estimator.getPredictionCol, copied.uid) == (("other", "prediction", estimator.uid))
    )
    assert(ours.copy(org.apache.spark.ml.param.ParamMap.empty).net eq ours.net)
  }

  test("a row of weight 2 trains as the row twice, one of weight 0 as none, where a step takes all rows") {
    val few =
      rows.limit(60).coalesce(1).withColumn("w", when(col("x") > 1, 2.0).when(col("y") > 1, 0.0).otherwise(1.0)).cache()
    val repeated = few.filter(col("w") > 0).union(few.filter(col("w") > 1)).coalesce(1).cache()
    def whole(frame: DataFrame) =
      classifier().setBatch(frame.count().toInt).setSettings(classifier().getSettings + ("data.classes" -> "3"))
    val (one, other, plain) =
      (whole(few).setWeightCol("w").fit(few), whole(repeated).fit(repeated), whole(few).fit(few))
    def probability(model: SparkDLClassificationModel) = model.predictProbability(rows.head().getAs[Vector]("features"))
    val (found, wanted) = (probability(one).toArray, probability(other).toArray)
    found.zip(wanted).foreach { case (a, b) => assert(math.abs(a - b) < 1e-5) }
    assert(found.zip(probability(plain).toArray).exists { case (a, b) => math.abs(a - b) > 1e-3 })
    val below = few.withColumn("w", lit(-1.0))
    assert(refused(whole(below).setWeightCol("w").fit(below)).contains("the weight is -1.0"))
    assert(refused(whole(few).setWeightCol("v").fit(few)).contains("no column 'v' (weightCol)"))
    assert(refused(whole(few).setWeightCol("kind").fit(few)).contains("'kind' (weightCol) is of type string"))
    assert(regressor().setLabelCol("x").setWeightCol("w").fit(few).numFeatures == 2)
  }

  test("rows with lists of labels: predictions are vectors like these, and whatever is written is read") {
    val several = rows.withColumn("labels", array((col("x") > 1).cast("double"), (col("y") > 1).cast("double"))).cache()
    val estimator = classifier().setLabelCol("labels").setEpochs(20)
    assert(estimator.transformSchema(several.schema)("prediction").dataType == SQLDataTypes.VectorType)
    val model = estimator.fit(several)
    val path = folder.resolve("several").toString
    model.write.overwrite().save(path)
    val read = SparkDLClassificationModel.load(path)
    assert(read.numClasses == 2 && read.labels.isEmpty)
    val found = read.transform(several).select("labels", "prediction", "probability", "features").collect()
    val right = found.count { row =>
      row.getAs[scala.collection.Seq[Double]](0).toSeq == row.getAs[Vector](1).toArray.toSeq
    }
    assert(right > 0.8 * found.length, s"$right of ${found.length}")
    val (likely, one) =
      (found.head.getAs[Vector](2).toArray, read.predictProbability(found.head.getAs[Vector](3)).toArray)
    likely.zip(one).foreach { case (a, b) => assert(math.abs(a - b) < 1e-6) }
    assert(refused(read.predict(found.head.getAs[Vector](3))).contains("which no single number says"))
    val other = estimator.copy(org.apache.spark.ml.param.ParamMap.empty).setSettings(Map("loss.name" -> "huber"))
    assert(refused(other.fit(several)).contains("Such rows have the loss binary-cross-entropy"))
  }

  test("no and yes by one output give the columns of two classes") {
    val two = rows.withColumn("label", (col("x") > 1).cast("double"))
    val model = classifier().setSettings(classifier().getSettings + ("loss" -> "bce")).fit(two)
    assert(model.numClasses == 2 && model.net.spec.classes == 1)
    val row = model.transform(two).head()
    val (raw, likely) = (row.getAs[Vector]("rawPrediction").toArray, row.getAs[Vector]("probability").toArray)
    assert(raw(0) == -raw(1) && math.abs(likely.sum - 1) < 1e-12)
    assert(row.getAs[Double]("prediction") == (if (raw(1) > 0) 1.0 else 0.0))
    assert(model.predict(row.getAs[Vector]("features")) == row.getAs[Double]("prediction"))
  }

  test("one row at a time gives what transform gives") {
    trained.transform(rows).limit(5).collect().foreach { row =>
      val features = row.getAs[Vector]("features")
      assert(trained.predict(features) == row.getAs[Double]("prediction"))
      Seq(trained.predictRaw(features) -> "rawPrediction", trained.predictProbability(features) -> "probability")
        .foreach { case (found, column) =>
          found.toArray.zip(row.getAs[Vector](column).toArray).foreach { case (one, other) =>
            assert(math.abs(one - other) < 1e-5)
          }
        }
    }
  }

  test("a pipeline from words to words, written and read") {
    val words = this.words
    val net = classifier().setFeaturesCols(Array("x", "y"))
    val indexed = indexer.fit(words)
    val back = new IndexToString().setInputCol("prediction").setOutputCol("said").setLabels(indexed.labelsArray(0))
    val stages = Array[PipelineStage](indexer, net, back)
    val fitted = new Pipeline().setStages(stages).fit(words)
    val path = folder.resolve("pipeline").toString
    fitted.write.overwrite().save(path)
    val saved = Files.list(
      Path.of(path, "stages").toFile.listFiles().map(_.toPath).find(_.toString.contains("SparkDL")).get.resolve("data")
    )
    // Each file of the net by a task of its own: Spark limits what one may bring along.
    try assert(saved.filter(_.getFileName.toString.endsWith(".parquet")).count() >= 3)
    finally saved.close()
    val read = PipelineModel.load(path)
    val (before, after) = (fitted.transform(words).collect(), read.transform(words).collect())
    assert(before.toSeq == after.toSeq)
    assert(read.transform(words).filter(col("said") === col("kind")).count() > 270)
    val estimator = folder.resolve("estimator").toString
    new Pipeline().setStages(stages).write.overwrite().save(estimator)
    val again = Pipeline.load(estimator).getStages(1).asInstanceOf[SparkDLClassifier]
    assert(again.getSettings == net.getSettings && again.getModel == net.getModel && again.getWorkers == "2")
    assert(again.getFeaturesCols.toSeq == Seq("x", "y"))
  }

  test("cross-validation with a grid, two fits at a time, chooses the better of two") {
    val net = classifier()
    val grid = new ParamGridBuilder().addGrid(net.epochs, Array(0, 4)).build()
    val search = new CrossValidator()
      .setEstimator(net)
      .setEvaluator(new MulticlassClassificationEvaluator().setMetricName("accuracy"))
      .setEstimatorParamMaps(grid)
      .setNumFolds(2)
      .setParallelism(2)
    val found = search.fit(rows)
    assert(found.avgMetrics(1) > 0.85 && found.avgMetrics(0) < found.avgMetrics(1))
    assert(found.bestModel.asInstanceOf[SparkDLClassificationModel].transform(rows).count() == 300)
  }

  test("a regression, as Spark ML has it") {
    val line = rows.select(col("features"), (col("x") * 0.5 + col("y") * 0.25).as("label"))
    val model: Model[SparkDLRegressionModel] = regressor().fit(line)
    val predicted = model.transform(line)
    assert(predicted.columns.toSeq == Seq("features", "label", "prediction"))
    assert(new RegressionEvaluator().setMetricName("r2").evaluate(predicted) > 0.8)
    val path = folder.resolve("regression").toString
    model.asInstanceOf[SparkDLRegressionModel].write.overwrite().save(path)
    assert(SparkDLRegressionModel.load(path).transform(line).collect().toSeq == predicted.collect().toSeq)
  }

  test("features are standardised by the training rows, unless the parameter or the settings say otherwise") {
    val far = words.select((col("x") * 1e4 - 300).as("x"), (col("y") * 1e-3 + 7).as("y"), col("kind"))
    val columns = classifier().setFeaturesCols(Array("x", "y"))
    def likely(estimator: SparkDLClassifier, frame: DataFrame): Seq[Double] = {
      val indexed = indexer.fit(frame).transform(frame)
      estimator
        .fit(indexed)
        .transform(indexed)
        .select("probability")
        .collect()
        .toSeq
        .flatMap(_.getAs[Vector](0).toArray)
    }
    def apart(one: Seq[Double], other: Seq[Double]) = one.zip(other).map { case (a, b) => math.abs(a - b) }.max
    val near = likely(columns, words)
    assert(apart(likely(columns, far), near) < 5e-3)
    val plain = likely(classifier().setFeaturesCols(Array("x", "y")).setStandardization(false), words)
    assert(apart(plain, near) > 0.01)
    assert(likely(columns.setSettings(columns.getSettings + ("normalize" -> "none")), words) == plain)
  }

  test("rows to validate on choose the epoch, and an earlier model is a start") {
    val validated = rows.withColumn("held", rand(3) < 0.3)
    val model = classifier().setValidationIndicatorCol("held").fit(validated)
    assert(accuracy(model.transform(rows)) > 0.9)
    val start = folder.resolve("start").toString
    trained.saveNet(start)
    val more = classifier().setInitialModel(start).setEpochs(0).fit(rows)
    assert(more.net.weights.toSeq == trained.net.weights.toSeq)
  }

  test("rows without values by handleInvalid") {
    val holed = words.withColumn("x", when(col("y") > 2, lit(null)).otherwise(col("x")))
    val indexed = indexer.fit(holed).transform(holed)
    val net = classifier().setFeaturesCols(Array("x", "y")).setHandleInvalid("skip").fit(indexed)
    val whole = indexed.filter(col("x").isNotNull).count()
    assert(net.transform(indexed).count() == whole && whole < 300)
    net.setHandleInvalid("keep")
    assert(net.transform(indexed).filter(col("prediction").isNull).count() == 300 - whole)
  }

  test("what Python wrote is read") {
    // As Python's `settings`, `model` and `workers` stand in its metadata.
    val estimator = folder.resolve("python-estimator")
    classifier().write.overwrite().save(estimator.toString)
    val metadata =
      Files.list(estimator.resolve("metadata")).filter(_.getFileName.toString.startsWith("part-")).findFirst.get
    val python = Json.fields(
      "class" -> "sparkdl_bench.ml.SparkDLClassifier",
      "timestamp" -> 1,
      "sparkVersion" -> spark.version,
      "uid" -> "SparkDLClassifier_1",
      "paramMap" -> Json.fields(
        "model" -> Json.fields("name" -> "mlp", "hidden" -> Seq(100, 50)),
        "workers" -> "2..8",
        "settings" -> Json.fields("learning_rate" -> 0.1, "schedule" -> Json.fields("name" -> "cosine"), "seed" -> 7),
        "classWeights" -> Seq(1.0, 2.5)
      ),
      "defaultParamMap" -> Json.fields(
        "initialModel" -> null,
        "classWeights" -> Nil,
        "featuresCols" -> Nil,
        "epochs" -> 5
      )
    )
    Files.list(estimator.resolve("metadata")).forEach(each => Files.delete(each))
    Files.write(metadata, Json.line(python).getBytes("UTF-8"))
    val read = SparkDLClassifier.load(estimator.toString)
    assert(read.getModel == Map("name" -> "mlp", "hidden" -> "100,50"))
    assert(read.getWorkers == "2..8" && read.getInitialModel == "" && read.getClassWeights == "1.0,2.5")
    assert(read.getSettings == Map("learning_rate" -> "0.1", "schedule.name" -> "cosine", "seed" -> "7"))
  }

  test("classes that no row has are told") {
    val plain = rows.select(col("features"), col("label").cast("int").as("label")) // without StringIndexer's names
    def fitted(frame: DataFrame) = logged(classifier().setEpochs(1).fit(frame))
    assert(fitted(plain).isEmpty)
    val told = fitted(plain.withColumn("label", col("label") * 2 + 1)).mkString
    assert(told.contains("holds 3 different labels and the largest is 5, so 3 of the 6 classes"))
    assert(told.contains("StringIndexer"))
  }

  test("what cannot be trained on is refused by name") {
    assert(refused(classifier().setFeaturesCol("pixels").fit(rows)).startsWith("The DataFrame has no column 'pixels'"))
    assert(refused(classifier().setLabelCol("kind").fit(rows)).contains("holds words. Number them first"))
    assert(refused(regressor().setLabelCol("kind").fit(rows)).contains("and a regression predicts numbers"))
    assert(refused(regressor().setLoss("cross-entropy").fit(rows)).contains("Use SparkDLClassifier"))
    assert(refused(classifier().setValidationIndicatorCol("x").fit(rows)).contains("must be a boolean column"))
    assert(refused(new SparkDLClassificationModel().transform(rows)).contains("has no trained net"))
    assert(refused(classifier().setPredictionCol("x").transformSchema(rows.schema)).contains("already"))
    assert(refused(trained.predict(org.apache.spark.ml.linalg.Vectors.dense(1.0))).contains("takes rows of 2"))
    val labels = rows.withColumn("label", lit(2026.5))
    assert(refused(classifier().fit(labels)).contains("The largest label in the column 'label' (labelCol) is 2026.5"))
    val typed: Estimator[SparkDLClassificationModel] = classifier()
    assert(typed.explainParams().contains("handleInvalid"))
  }
}
