package sparkdlbench.ml

import org.apache.spark.ml.param.shared.{
  HasFeaturesCol,
  HasLabelCol,
  HasPredictionCol,
  HasProbabilityCol,
  HasRawPredictionCol
}
import org.apache.spark.ml.param.{Param, ParamValidators, StringArrayParam}
import sparkdlbench.predict.PredictSettings

/** What estimators and their models share: where a row's values are, what a row without valid ones does, and the prediction's column. */
trait NetColumns extends HasFeaturesCol with HasLabelCol with HasPredictionCol {

  /** Names of numeric columns, in place of `featuresCol`; empty by default. */
  final val featuresCols: StringArrayParam =
    new StringArrayParam(this, "featuresCols", "names of numeric columns, in place of featuresCol")

  /** What a row does that has no valid values: `error` (the default), `skip` or `keep`. */
  final val handleInvalid: Param[String] = new Param[String](
    this,
    "handleInvalid",
    "what a row does that has no valid values: error, skip or keep",
    ParamValidators.inArray[String](PredictSettings.Invalid.toArray)
  )
  setDefault(featuresCols -> Array.empty[String], handleInvalid -> "error")

  def getFeaturesCols: Array[String] = $(featuresCols)
  def getHandleInvalid: String = $(handleInvalid)

  /** A column with arrays or vectors, or one of numbers. */
  def setFeaturesCol(value: String): this.type = set(featuresCol, value)
  def setFeaturesCols(value: Array[String]): this.type = set(featuresCols, value)
  def setHandleInvalid(value: String): this.type = set(handleInvalid, value)

  /** As Spark ML has it; empty: no such column. */
  def setPredictionCol(value: String): this.type = set(predictionCol, value)

  private[ml] def features: Seq[String] = if ($(featuresCols).nonEmpty) $(featuresCols).toSeq else Seq($(featuresCol))

  /** The columns of predictions. */
  private[ml] def columns: PredictSettings = PredictSettings(
    features = features,
    rawPrediction = "",
    probability = "",
    prediction = $(predictionCol),
    handleInvalid = $(handleInvalid)
  )
}

/** Those of a classifier besides. */
trait ClassColumns extends NetColumns with HasProbabilityCol with HasRawPredictionCol {

  /** Empty: no such column. */
  def setProbabilityCol(value: String): this.type = set(probabilityCol, value)
  def setRawPredictionCol(value: String): this.type = set(rawPredictionCol, value)

  private[ml] override def columns: PredictSettings =
    super.columns.copy(rawPrediction = $(rawPredictionCol), probability = $(probabilityCol))
}
