// The package has the name of Python's module: Spark ML writes a class's name beside its parameters, and each language finds its own by it.
package sparkdl_bench.ml

import org.apache.spark.ml.linalg.{SQLDataTypes, Vector, Vectors}
import org.apache.spark.ml.param.{Param, ParamMap}
import org.apache.spark.ml.util.{DefaultParamsReadable, DefaultParamsWritable, Identifiable}
import org.apache.spark.ml.{Estimator, Model}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.{DataFrame, Dataset}
import sparkdlbench.common.ConfigurationException
import sparkdlbench.ml._

/**
 * Trains a net that tells classes apart on all rows of the DataFrame that `fit` gets, for pipelines, grids and cross-validation. Labels are
 * 0, 1, …, as StringIndexer makes them of words; its metadata says how many classes there are and what they are called, without it the
 * largest label does.
 *
 * Where the label is an array or a vector with 0 or 1 for each label that a row may have, the model finds these: it is trained with the loss
 * `binary-cross-entropy`, and its prediction is a vector like the label.
 *
 * {{{
 * val classifier = new SparkDLClassifier().setFeaturesCols(Array("x", "y")).setWorkers(2).setSettings(Map("optimizer.learning_rate" -> "0.1"))
 * val model = new Pipeline().setStages(Array(indexer, classifier)).fit(rows)
 * }}}
 *
 * Runs of one process follow each other, so that `CrossValidator` with `parallelism` works with slots for one. Throws
 * ConfigurationException before any training where columns or keys do not fit. What either language writes, the other reads.
 */
class SparkDLClassifier(override val uid: String)
    extends Estimator[SparkDLClassificationModel]
    with NetParams
    with ClassColumns
    with DefaultParamsWritable {
  def this() = this(Identifiable.randomUID("SparkDLClassifier"))

  /** `balanced`, or what a row's loss is multiplied by, a number for each class with commas between; empty: all count alike. */
  final val classWeights: Param[String] = NetParams.classWeights(this)
  setDefault(classWeights -> "")
  def getClassWeights: String = $(classWeights)
  def setClassWeights(value: String): this.type = set(classWeights, value)

  override def fit(dataset: Dataset[_]): SparkDLClassificationModel = {
    val model = new SparkDLClassificationModel(uid).setParent(this)
    copyValues(model.holding(NetTraining.classifier(dataset, this, $(classWeights))))
  }

  override def transformSchema(schema: StructType): StructType = NetRows.planned(
    schema,
    this,
    Seq($(rawPredictionCol) -> SQLDataTypes.VectorType, $(probabilityCol) -> SQLDataTypes.VectorType)
  )
  override def copy(extra: ParamMap): SparkDLClassifier = defaultCopy(extra)
}

object SparkDLClassifier extends DefaultParamsReadable[SparkDLClassifier]

/** What `SparkDLClassifier.fit` returns. */
class SparkDLClassificationModel(override val uid: String)
    extends Model[SparkDLClassificationModel]
    with TrainedNet
    with ClassColumns {
  def this() = this(Identifiable.randomUID("SparkDLClassificationModel"))

  /** How many classes it tells apart, or labels a row may have. */
  def numClasses: Int = net.classes

  /** What the classes are called, as StringIndexer had it; empty where the label had no metadata. */
  def labels: Array[String] = net.input.labels.toArray

  /** The class of one row. */
  def predict(features: Vector): Double = {
    if (net.input.binary && net.spec.classes > 1)
      throw new ConfigurationException(
        s"A row may have several of the model's ${net.spec.classes} labels, which no single number says. Ask predictProbability(features), whose values above 0.5 are " +
          "the row's labels, or transform(frame)."
      )
    predictRaw(features).argmax.toDouble
  }

  /** The class scores of one row, before the softmax. */
  def predictRaw(features: Vector): Vector = Vectors.dense(NetRows.raw(this, features))

  /** The classes' probabilities of one row. */
  def predictProbability(features: Vector): Vector =
    Vectors.dense(NetRows.probabilities(this, features))

  override def transform(dataset: Dataset[_]): DataFrame = NetRows.predicted(this, dataset)
  override def transformSchema(schema: StructType): StructType = NetRows.schema(this, schema)
  override def copy(extra: ParamMap): SparkDLClassificationModel =
    defaultCopy[SparkDLClassificationModel](extra).holding(net).setParent(parent)
}

object SparkDLClassificationModel extends TrainedNetReadable[SparkDLClassificationModel]
