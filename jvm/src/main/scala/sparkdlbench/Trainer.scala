package sparkdlbench

import org.apache.spark.SparkContext
import org.apache.spark.sql.{DataFrame, SparkSession}
import sparkdlbench.predict.{PredictSettings, Transform}
import sparkdlbench.train.{RunResult, TrainingRun}

/**
 * Trains a net in a Spark session from Java or Scala:
 * {{{
 * val fitted = Trainer.builder().set("model.name", "mlp").set("data.source", "digits").set("workers", "2").fit(spark)
 * println(fitted.testAccuracy)
 * }}}
 * Keys are those of the run files (docs/reference/configuration.md). Throws ConfigurationException before any Spark job starts where the
 * settings, the data or the session do not fit, RunFailedException where training fails.
 */
object Trainer {
  def builder(): Builder = new Builder(Map.empty)

  /** Settings so far; immutable: each call returns a new one. */
  final class Builder private[Trainer] (settings: Map[String, String]) {
    def set(key: String, value: String): Builder = new Builder(settings.updated(key, value))
    def fit(spark: SparkSession): Fitted = fit(spark.sparkContext)
    def fit(sc: SparkContext): Fitted = new Fitted(TrainingRun.prepare(sc, settings).train())
  }

  /** A finished run. */
  final class Fitted private[Trainer] (result: RunResult) {
    private val summary = common.Json.read(result.summary)

    /** The summary as it stands in summary.json. */
    def summaryJson: String = result.summary

    /** The run's folder. */
    def resultsFolder: String = result.folder

    /** Share of the test rows classified right after the last epoch; NaN of a regression. */
    def testAccuracy: Double = last("test_accuracy")

    /** Of a regression, after the last epoch on the test rows: mean absolute error, in the label's unit; else NaN. */
    def testMae: Double = last("test_mae")

    /** The same: root of the mean squared error. */
    def testRmse: Double = last("test_rmse")

    /** The same: coefficient of determination; NaN where all labels of the test rows are the same. */
    def testR2: Double = last("test_r2")

    /**
     * Of two classes, after the last epoch on the test rows: area under the ROC curve; NaN where these are of one class, and of other
     * models.
     */
    def testAuc: Double = last("test_auc")

    /** Of two classes, of class 1: the share that has it of the rows that are predicted to; else NaN. */
    def testPrecision: Double = last("test_precision")

    /** The same: the share that is predicted to have it of the rows that have. */
    def testRecall: Double = last("test_recall")

    /** The same: the harmonic mean of both. */
    def testF1: Double = last("test_f1")

    /** Mean of F1 over the classes, or over the labels where a row may have several; NaN of a regression. */
    def testF1Macro: Double = last("test_f1_macro")

    /** Where a row may have several labels: F1 of all of them at once; else NaN. */
    def testF1Micro: Double = last("test_f1_micro")

    private def last(name: String): Double = summary.path("final").path(name).asDouble(Double.NaN)

    /** The trained weights and running statistics by name, row-major; shapes are in `modelJson`. */
    def weights: java.util.Map[String, Array[Float]] = named(result.weights, result.statistics)

    /** The same of the best evaluation; empty where `keep_best` is off. */
    def bestWeights: java.util.Optional[java.util.Map[String, Array[Float]]] =
      java.util.Optional.ofNullable(
        result.best.map(each => named(each.weights.head._2, each.statistics)).orNull
      )

    /**
     * Adds the trained model's predictions to a frame of rows like those of the training: `rawPrediction`, `probability` and `prediction`,
     * as Spark ML's classifiers do.
     */
    def transform(frame: DataFrame): DataFrame = transform(frame, PredictSettings())
    def transform(frame: DataFrame, settings: PredictSettings): DataFrame = Transform(frame, result.model, settings)

    /** Where the results are in place of their folder, which could not be written; empty where all is well. */
    def warning: String = result.warning.getOrElse("")

    /** Writes the trained model to `model` in the results folder, and the best one to `best`; returns the first folder. */
    def saveModels(): java.nio.file.Path = result.saveModels()

    private def named(weights: Array[Float], statistics: Array[Float]): java.util.Map[String, Array[Float]] = {
      val named = new java.util.LinkedHashMap[String, Array[Float]]()
      Seq(result.spec.layout -> weights, result.spec.statistics -> statistics).foreach { case (layout, values) =>
        layout.foreach(place => named.put(place.name, values.slice(place.offset, place.offset + place.length)))
      }
      named
    }

    /** The model's engine-neutral specification. */
    def modelJson: String = result.spec.toJson
  }

  private[sparkdlbench] def layoutJson(result: RunResult): String =
    common.Json.line((result.spec.layout ++ statisticsBehind(result)).map { parameter =>
      common.Json.fields("name" -> parameter.name, "shape" -> parameter.shape, "offset" -> parameter.offset)
    })

  /** The running statistics as they stand behind the weights. */
  private def statisticsBehind(result: RunResult) =
    result.spec.statistics.map(place => place.copy(offset = result.weights.length + place.offset))
}
