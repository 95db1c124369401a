package sparkdlbench.ml

import org.apache.spark.ml.param.shared.{HasStandardization, HasValidationIndicatorCol, HasWeightCol}
import org.apache.spark.ml.param.{IntParam, Param, ParamValidators}

import scala.jdk.CollectionConverters._
import scala.util.Try

/** The parameters of an estimator that trains a net, besides the columns. */
trait NetParams extends NetColumns with HasValidationIndicatorCol with HasWeightCol with HasStandardization {

  /** The model family's name and its keys (`hidden`); `mlp` by default. */
  final val model: Param[Map[String, String]] =
    new KeysParam(this, "model", "name of a model family, and its keys", only = "name")

  /** Number of ranks, each one Spark task, or a range (`2..8`); 2 by default. */
  final val workers: Param[String] = new TextParam(
    this,
    "workers",
    "number of ranks, each one Spark task; or a range, 2..8",
    text => if (text.matches("\\d{1,9}")) text.toInt else text
  )
  final val batch: IntParam = new IntParam(this, "batch", "rows per step over all workers", ParamValidators.gtEq(1))
  final val epochs: IntParam = new IntParam(this, "epochs", "passes over the rows", ParamValidators.gtEq(0))

  /** Further keys of the run, by their names in run files: `optimizer.learning_rate`, `seed`, … */
  final val settings: Param[Map[String, String]] = new KeysParam(this, "settings", "further keys of the run, by name")

  /** The path of a saved model, or of weights, on the driver's host, to start from; empty: the weights that the seed gives. */
  final val initialModel: Param[String] = new TextParam(
    this,
    "initialModel",
    "the path of a trained model, or of its weights, to start from",
    text => if (text.isEmpty) null else text
  )
  setDefault(
    model -> Map("name" -> "mlp"),
    workers -> "2",
    batch -> 128,
    epochs -> 5,
    settings -> Map.empty[String, String],
    standardization -> true,
    initialModel -> ""
  )

  def getModel: Map[String, String] = $(model)
  def getWorkers: String = $(workers)
  def getBatch: Int = $(batch)
  def getEpochs: Int = $(epochs)
  def getSettings: Map[String, String] = $(settings)
  def getInitialModel: String = $(initialModel)

  def setLabelCol(value: String): this.type = set(labelCol, value)

  /** A boolean column, true for rows that are tested on and not trained on; the model is then that of the lowest test loss. */
  def setValidationIndicatorCol(value: String): this.type = set(validationIndicatorCol, value)

  /** A column of numbers of at least 0: training minimises sum(weight × loss) / sum(weight), as Spark ML's own estimators do. */
  def setWeightCol(value: String): this.type = set(weightCol, value)

  /**
   * Whether features are standardised by the training rows, each weighted by `weightCol`; true by default, as with Spark ML's own estimators,
   * which leave the means where they are. The key `data.normalize` among the settings takes its place. The model does the same with the rows it
   * gets.
   */
  def setStandardization(value: Boolean): this.type = set(standardization, value)
  def setModel(name: String): this.type = set(model, Map("name" -> name))

  /** With keys of the model's: `setModel(Map("name" -> "mlp", "hidden" -> "100,50"))`. */
  def setModel(keys: Map[String, String]): this.type = set(model, keys)

  /** The same for Java. */
  def setModel(keys: java.util.Map[String, String]): this.type = setModel(keys.asScala.toMap)
  def setWorkers(value: Int): this.type = set(workers, value.toString)
  def setWorkers(range: String): this.type = set(workers, range)
  def setBatch(value: Int): this.type = set(batch, value)
  def setEpochs(value: Int): this.type = set(epochs, value)

  /** All of them; those set before are forgotten. */
  def setSettings(keys: Map[String, String]): this.type = set(settings, keys)

  /** The same for Java. */
  def setSettings(keys: java.util.Map[String, String]): this.type = setSettings(keys.asScala.toMap)
  def setInitialModel(path: String): this.type = set(initialModel, path)
}

object NetParams {

  /** Of a classifier; a written one has a list of numbers, as Python's has. */
  def classWeights(parent: NetParams): Param[String] = new TextParam(
    parent,
    "classWeights",
    "balanced, or a number for each class",
    {
      case "" => Nil
      case text if text.split(",").forall(each => Try(each.trim.toDouble).isSuccess) =>
        text.split(",").map(_.trim.toDouble).toList
      case text => text
    }
  )
}
