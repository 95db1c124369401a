package sparkdlbench.ml

import org.apache.spark.ml.linalg.{SQLDataTypes, Vector}
import org.apache.spark.sql.types.{DataType, DoubleType, StructField, StructType}
import org.apache.spark.sql.{DataFrame, Dataset}
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.RunKeys
import sparkdlbench.predict.{Outcome, PredictSettings, Predictor, Transform}

/** Rows through the trained net of a model, and what the columns of its predictions are. */
object NetRows {

  /** The net's outputs for one row: class scores before the softmax, or the number of a regression; in this process, for a few rows. */
  def scores(model: TrainedNet, features: Vector): Array[Double] = {
    val net = model.net
    if (features.size != net.input.width)
      throw new ConfigurationException(
        s"The row has ${features.size} values, and the model takes rows of ${net.input.width}. Give a vector of as many."
      )
    val (engine, threads) = PredictSettings.engine(net, Map.empty, Map(RunKeys.threads.name -> "1"))
    val predictor = new Predictor(net, 1, threads, engine)
    try {
      predictor.put(0, features.toArray.map(_.toFloat))
      predictor.scores(1).head
    } finally predictor.close()
  }

  /** A score for each class, or for each label, of one row. */
  def raw(model: TrainedNet, features: Vector): Array[Double] =
    Outcome.of(model.net).raw(scores(model, features))

  /** The probabilities of the classes, or of each label, of one row. */
  def probabilities(model: TrainedNet, features: Vector): Array[Double] =
    Outcome.of(model.net).probability(scores(model, features))

  def predicted(model: TrainedNet, dataset: Dataset[_]): DataFrame =
    Transform(dataset.toDF(), model.net, model.columns)

  /** The columns of `predicted`, by names and types alone. */
  def schema(model: TrainedNet, before: StructType): StructType = Transform.schema(before, model.net, model.columns)

  /**
   * The columns of a model that an estimator will train.
   *
   * @param added
   *   names and types besides the prediction's; an empty name is no column
   */
  def planned(before: StructType, own: NetParams, added: Seq[(String, DataType)]): StructType = {
    NetTraining.check(before, own)
    val kind = if (NetTraining.hasSeveral(before, own)) SQLDataTypes.VectorType else DoubleType
    val all = added :+ (own.getPredictionCol -> kind)
    all.filter(_._1.nonEmpty).foldLeft(before) { case (sofar, (name, kind)) =>
      if (sofar.fieldNames.contains(name))
        throw new ConfigurationException(
          s"The DataFrame has a column '$name' already, and the predictions would get the same name. Drop or rename it, or name another column for them."
        )
      sofar.add(StructField(name, kind))
    }
  }
}
