package sparkdl_bench.ml

import org.apache.spark.ml.linalg.Vector
import org.apache.spark.ml.param.{Param, ParamMap}
import org.apache.spark.ml.util.{DefaultParamsReadable, DefaultParamsWritable, Identifiable}
import org.apache.spark.ml.{Estimator, Model}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.{DataFrame, Dataset}
import sparkdlbench.ml._

/**
 * Trains a net that predicts a number on all rows of the DataFrame that `fit` gets. Losses grow with the labels' unit: bring labels that are
 * far from -1 to 1 nearer first, or lower the learning rate. All else as `SparkDLClassifier`.
 */
class SparkDLRegressor(override val uid: String)
    extends Estimator[SparkDLRegressionModel]
    with NetParams
    with DefaultParamsWritable {
  def this() = this(Identifiable.randomUID("SparkDLRegressor"))

  /** `mean-squared` (the default), `absolute` or `huber`, whose `loss.delta` stands in `settings`. */
  final val loss: Param[String] = new Param[String](this, "loss", "mean-squared, absolute or huber")
  setDefault(loss -> "mean-squared")
  def getLoss: String = $(loss)
  def setLoss(value: String): this.type = set(loss, value)

  override def fit(dataset: Dataset[_]): SparkDLRegressionModel = {
    val model = new SparkDLRegressionModel(uid).setParent(this)
    copyValues(model.holding(NetTraining.regressor(dataset, this, $(loss))))
  }

  override def transformSchema(schema: StructType): StructType = NetRows.planned(schema, this, Nil)
  override def copy(extra: ParamMap): SparkDLRegressor = defaultCopy(extra)
}

object SparkDLRegressor extends DefaultParamsReadable[SparkDLRegressor]

/** What `SparkDLRegressor.fit` returns. */
class SparkDLRegressionModel(override val uid: String) extends Model[SparkDLRegressionModel] with TrainedNet {
  def this() = this(Identifiable.randomUID("SparkDLRegressionModel"))

  /** The number predicted for one row. */
  def predict(features: Vector): Double = NetRows.scores(this, features).head

  override def transform(dataset: Dataset[_]): DataFrame = NetRows.predicted(this, dataset)
  override def transformSchema(schema: StructType): StructType = NetRows.schema(this, schema)
  override def copy(extra: ParamMap): SparkDLRegressionModel =
    defaultCopy[SparkDLRegressionModel](extra).holding(net).setParent(parent)
}

object SparkDLRegressionModel extends TrainedNetReadable[SparkDLRegressionModel]
