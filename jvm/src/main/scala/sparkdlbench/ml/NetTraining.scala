package sparkdlbench.ml

import org.apache.spark.internal.Logging
import org.apache.spark.ml.linalg.SQLDataTypes
import org.apache.spark.sql.functions.{coalesce, col, collect_set, floor, isnan, lit, max, size, when}
import org.apache.spark.sql.types.{ArrayType, BooleanType, DataType, NumericType, StringType, StructType}
import org.apache.spark.sql.{Column, DataFrame, Dataset, SparkSession}
import sparkdlbench.common.{ConfigurationException, Json}
import sparkdlbench.config.Aliases
import sparkdlbench.data.Normalization
import sparkdlbench.results.SavedModel
import sparkdlbench.train.TrainingRun

import java.util.UUID
import scala.jdk.CollectionConverters._
import scala.util.Try

/** Trains on the rows of a DataFrame, as the estimators of Spark ML do; Python's `sparkdl_bench.ml` goes by the same rules. */
object NetTraining extends Logging {
  private val Features = "features"
  private val Label = "label"
  private val Validation = "validation"
  private val Weight = "weight"
  private val Binary = "binary-cross-entropy"

  /** Rows that a run's own test figures are of; all rows train. */
  private val TestRows = 1000

  /** Who has more classes says so: a single stray label, an id or a year, would make a net of its size. */
  private val MostCounted = 10000

  /**
   * A net that tells classes apart; labels are 0, 1, … as StringIndexer makes them, whose metadata has the classes' names. Where the label is
   * an array or a vector, one that finds each row's labels.
   */
  def classifier(dataset: Dataset[_], own: NetParams, classWeights: String): SavedModel = {
    val names = labelNames(dataset.schema, own)
    val rows = rowsOf(dataset, own)
    val asked = keys(own) ++ Option(classWeights).filter(_.nonEmpty).map("loss.class_weights" -> _)
    val binary = asked.get("loss.name").exists(Aliases.value("loss.name", _) == Binary)
    def classes = asked
      .get("data.classes")
      .getOrElse((if (names.nonEmpty) names.size else math.max(2, countClasses(rows, own, asked))).toString)
    val counted =
      if (hasSeveral(dataset.schema, own)) Map("loss.name" -> several(asked, own))
      else if (binary) Map.empty[String, String]
      else Map("data.classes" -> classes)
    val trained = train(rows, own, asked ++ counted)
    val fitting = if (names.size == trained.classes) names else Nil
    if (trained.input.binary && trained.spec.classes > 1) trained // the labels' own names
    else trained.copy(input = trained.input.copy(labels = fitting))
  }

  /** Whether a row may have several labels: 0 or 1 for each, in an array or a vector. */
  private[ml] def hasSeveral(schema: StructType, own: NetParams): Boolean =
    typeOf(schema, own.getLabelCol).exists(kind => kind.isInstanceOf[ArrayType] || kind == SQLDataTypes.VectorType)

  /** The loss of such rows. */
  private def several(asked: Map[String, String], own: NetParams): String = {
    asked.get("loss.name").filter(Aliases.value("loss.name", _) != Binary).foreach { named =>
      throw new ConfigurationException(
        s"Column '${own.getLabelCol}' (labelCol) holds lists, several labels of a row, and settings has the loss '$named'. Such rows have the loss " +
          s"$Binary: leave it out, or name a column of classes."
      )
    }
    Binary
  }

  /** A net that predicts a number. */
  def regressor(dataset: Dataset[_], own: NetParams, loss: String): SavedModel = {
    checkNumber(dataset.schema, own)
    val asked = keys(own)
    asked.get("loss.name").foreach { named =>
      throw new ConfigurationException(
        s"settings has the loss '$named'. The loss is a parameter of its own: setLoss('$named')."
      )
    }
    if (Seq("cross-entropy", "binary-cross-entropy").contains(Aliases.value("loss.name", loss)))
      throw new ConfigurationException(
        s"loss is '$loss', which tells classes apart. Use SparkDLClassifier, or one of the losses mean-squared, absolute and huber."
      )
    train(rowsOf(dataset, own), own, asked + ("loss.name" -> loss))
  }

  /** What `settings` and `model` say, by the keys' names in run files. */
  private def keys(own: NetParams): Map[String, String] = {
    val model = own.getModel.map { case (name, value) => s"model.$name" -> value }
    val initial = Option(own.getInitialModel).filter(_.nonEmpty).map("model.initial_weights" -> _)
    own.getSettings.map { case (name, value) => Aliases.key(name.replace("__", ".")) -> value } ++ model ++ initial
  }

  /** Refuses columns that are not there; no job is started. */
  private[ml] def check(schema: StructType, own: NetParams): Unit =
    own.features.find(name => !schema.fieldNames.contains(name)).foreach { name =>
      throw missing(name, if (own.getFeaturesCols.nonEmpty) "featuresCols" else "featuresCol", schema)
    }

  /** The columns of a row's values, the label as a number, the row's weight, and which rows are tested on. */
  private def rowsOf(dataset: Dataset[_], own: NetParams): DataFrame = {
    check(dataset.schema, own)
    val values =
      if (own.getFeaturesCols.isEmpty) Seq(column(own.features.head).as(Features))
      else own.features.zipWithIndex.map { case (name, at) => column(name).as(featureName(at, name)) }
    val label = column(own.getLabelCol)
    val all = values :+ (if (hasSeveral(dataset.schema, own)) label else label.cast("double")).as(Label)
    dataset.toDF().select(all ++ weight(dataset.schema, own) ++ indicator(dataset.schema, own): _*)
  }

  /** Of a feature while it trains, and in the net: its own, unless that cannot stand beside the others. */
  private def featureName(at: Int, name: String): String =
    if (name == Label || name == Validation || name == Weight || name.contains(',')) s"${Features}_$at" else name

  private def weight(schema: StructType, own: NetParams): Option[Column] =
    if (!own.isSet(own.weightCol) || own.getWeightCol.isEmpty) None
    else {
      val name = own.getWeightCol
      typeOf(schema, name) match {
        case None => throw missing(name, "weightCol", schema)
        case Some(_: NumericType) => Some(column(name).cast("double").as(Weight))
        case Some(other) =>
          throw new ConfigurationException(
            s"Column '$name' (weightCol) is of type ${other.simpleString}; the rows' weights are numbers of at least 0. Cast it, or name another column."
          )
      }
    }

  private def indicator(schema: StructType, own: NetParams): Option[Column] =
    if (!own.isSet(own.validationIndicatorCol)) None
    else {
      val name = own.getValidationIndicatorCol
      typeOf(schema, name) match {
        case Some(BooleanType) => Some(coalesce(column(name), lit(false)).as(Validation))
        case other =>
          throw new ConfigurationException(
            s"Column '$name' (validationIndicatorCol) is ${other.fold("not there")(_.simpleString)}; it must be a boolean column of the DataFrame, true for " +
              "the rows that are tested on."
          )
      }
    }

  /** A run takes all of its workers' slots for as long as it trains: two at once might each hold some of what the other waits for. */
  private def train(rows: DataFrame, own: NetParams, asked: Map[String, String]): SavedModel = synchronized {
    val validated = rows.columns.contains(Validation)
    val weight = rows.columns.find(_ == Weight)
    val (training, testing) =
      if (validated) (rows.filter(!col(Validation)).drop(Validation), rows.filter(col(Validation)).drop(Validation))
      else (rows, rows.limit(TestRows))
    val spark = rows.sparkSession
    withView(spark, training) { table =>
      withView(spark, testing) { test =>
        val data = Map(
          "data.source" -> "table",
          "data.table" -> table,
          "data.test_table" -> test,
          "data.label" -> Label,
          "data.columns" -> training.columns.filter(name => name != Label && !weight.contains(name)).mkString(",")
        ) ++ weight.map("data.weight" -> _)
        val skipping =
          if (own.getHandleInvalid == "error") Map.empty[String, String]
          else Map("data.on_error" -> "skip", "data.max_skipped" -> Int.MaxValue.toString)
        // The rows are there to choose by.
        val choosing = if (validated) Map("keep_best" -> "loss") else Map.empty[String, String]
        val numbers = Map(
          "workers" -> own.getWorkers,
          "batch" -> own.getBatch.toString,
          "epochs" -> own.getEpochs.toString
        )
        val standard =
          if (own.getStandardization) Map(Normalization.mode.name -> "standard") else Map.empty[String, String]
        val settings = data ++ skipping ++ choosing ++ numbers ++ standard ++ asked
        val result = TrainingRun.prepare(spark.sparkContext, settings).train()
        result.best
          .filter(_ => settings.getOrElse("keep_best", "off") != "off")
          .fold(result.model)(best => SavedModel(result.spec, best.weights.head._2, best.statistics, result.input))
      }
    }
  }

  /** A name for a frame by which the run finds it, in whatever session of the application. */
  private def withView[T](spark: SparkSession, frame: DataFrame)(use: String => T): T = {
    val name = s"sparkdl_${UUID.randomUUID.toString.replace("-", "")}"
    frame.createGlobalTempView(name)
    try use(s"${spark.conf.get("spark.sql.globalTempDatabase", "global_temp")}.$name")
    finally { spark.catalog.dropGlobalTempView(name); () }
  }

  /** Names of the classes as StringIndexer leaves them in the column's metadata; none where it has no such. */
  private def labelNames(schema: StructType, own: NetParams): Seq[String] = {
    val label = own.getLabelCol
    typeOf(schema, label) match {
      case None => throw missing(label, "labelCol", schema)
      case Some(StringType) =>
        throw new ConfigurationException(
          s"Column '$label' (labelCol) holds words. Number them first: StringIndexer of Spark ML, with inputCol '$label' and outputCol 'label', whose " +
            "names of the classes the model keeps."
        )
      case Some(_) =>
        Json.read(schema(label).metadata.json).path("ml_attr").path("vals").elements.asScala.map(_.asText).toList
    }
  }

  /** Refuses a label that is not there or holds no numbers, before any job. */
  private def checkNumber(schema: StructType, own: NetParams): Unit = {
    val label = own.getLabelCol
    typeOf(schema, label) match {
      case None => throw missing(label, "labelCol", schema)
      case Some(_: NumericType) | Some(BooleanType) => ()
      case Some(other) =>
        throw new ConfigurationException(
          s"Column '$label' (labelCol) is of type ${other.simpleString}, and a regression predicts numbers. Cast it, or name another column; for words and " +
            "classes there is SparkDLClassifier."
        )
    }
  }

  private def countClasses(rows: DataFrame, own: NetParams, asked: Map[String, String]): Int = {
    val label = own.getLabelCol
    val ignored = asked.get("loss.ignore_label").flatMap(text => Try(text.trim.toInt).toOption)
    val counted = ignored.fold(rows)(label => rows.filter(col(Label) =!= label))
    val isClass = col(Label) >= 0 && col(Label) < MostCounted && col(Label) === floor(col(Label))
    val different = size(collect_set(when(isClass, col(Label)))) // ids and years are not collected
    val found = counted.filter(!isnan(col(Label))).agg(max(Label), different).head()
    if (found.isNullAt(0))
      throw new ConfigurationException(
        s"No row has a label in the column '$label' (labelCol), so there is nothing to learn."
      )
    val largest = found.getDouble(0)
    if (!(largest >= 0 && largest < MostCounted) || largest != largest.toInt)
      throw new ConfigurationException(
        s"The largest label in the column '$label' (labelCol) is $largest. Labels are 0, 1, … up to ${MostCounted - 1}. Number them with StringIndexer of " +
          "Spark ML; to predict numbers, use SparkDLRegressor; for more classes, say how many: key 'data.classes' of the parameter settings."
      )
    gaps(label, found.getInt(1), largest.toInt).foreach(told => logWarning(told))
    largest.toInt + 1
  }

  /** What to say of labels that count from 1, or are numbers of something else; `present`: how many different ones there are. */
  private[ml] def gaps(column: String, present: Int, largest: Int): Option[String] =
    if (present == largest + 1) None
    else
      Some(
        s"The column '$column' (labelCol) holds $present different labels and the largest is $largest, so ${largest + 1 - present} of the ${largest + 1} " +
          s"classes, 0 to $largest, have no row: the net learns never to answer them. Number the labels without gaps, for instance with StringIndexer of " +
          "Spark ML, if they are not meant."
      )

  private def typeOf(schema: StructType, name: String): Option[DataType] =
    schema.fields.find(_.name == name).map(_.dataType)

  private def missing(name: String, parameter: String, schema: StructType) = new ConfigurationException(
    s"The DataFrame has no column '$name' ($parameter). Its columns are ${schema.fieldNames.take(20).mkString(", ")}."
  )

  /** A name may have dots. */
  private def column(name: String): Column = col(s"`${name.replace("`", "``")}`")
}
