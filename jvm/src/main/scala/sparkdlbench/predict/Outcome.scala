package sparkdlbench.predict

import org.apache.spark.ml.linalg.SQLDataTypes
import org.apache.spark.sql.types.{DataType, DoubleType}
import org.apache.spark.sparkdlbench.HeldRow
import sparkdlbench.results.SavedModel

/** What a model's outputs say of a row, as the columns of predictions have it. */
private[sparkdlbench] sealed trait Outcome extends Serializable {

  /** A score for each class, or for each label that a row may have. */
  def raw(outputs: Array[Double]): Array[Double]
  def probability(outputs: Array[Double]): Array[Double]

  /** As its column holds it. */
  def prediction(outputs: Array[Double]): Any
  def kind: DataType = DoubleType

  /** @param names of the classes or labels, empty where they have none; null where nothing is predicted */
  def label(outputs: Array[Double], names: Seq[String]): String
}

private[sparkdlbench] object Outcome {
  def of(model: SavedModel): Outcome =
    if (!model.input.binary) { if (model.isRegression) Number else Classes }
    else if (model.spec.classes == 1) NoOrYes
    else Labels

  /** Of a regression; the other columns are left out. */
  private object Number extends Outcome {
    def raw(outputs: Array[Double]): Array[Double] = outputs
    def probability(outputs: Array[Double]): Array[Double] = Array.emptyDoubleArray
    def prediction(outputs: Array[Double]): Any = outputs.head
    def label(outputs: Array[Double], names: Seq[String]): String = null
  }

  /** One of several that exclude each other. */
  private object Classes extends Outcome {
    def raw(outputs: Array[Double]): Array[Double] = outputs
    def probability(outputs: Array[Double]): Array[Double] = Predictor.softmax(outputs)
    def prediction(outputs: Array[Double]): Any = of(Predictor.best(outputs))
    def label(outputs: Array[Double], names: Seq[String]): String = name(Predictor.best(outputs), names)
  }

  /** Classes 0 and 1 by one output, as Spark ML's LogisticRegression has them: the score of class 0 is that of class 1 with the other sign. */
  private object NoOrYes extends Outcome {
    def raw(outputs: Array[Double]): Array[Double] = Array(-outputs.head, outputs.head)
    def probability(outputs: Array[Double]): Array[Double] =
      Array(Predictor.sigmoid(-outputs.head), Predictor.sigmoid(outputs.head))
    def prediction(outputs: Array[Double]): Any = of(best(outputs))
    def label(outputs: Array[Double], names: Seq[String]): String = name(best(outputs), names)
    private def best(outputs: Array[Double]): Int =
      if (outputs.head.isNaN) -1 else if (outputs.head > 0) 1 else 0
  }

  /** Any number of labels; the prediction is a vector with 1 for each that the row has. */
  private object Labels extends Outcome {
    override def kind: DataType = SQLDataTypes.VectorType
    def raw(outputs: Array[Double]): Array[Double] = outputs
    def probability(outputs: Array[Double]): Array[Double] = outputs.map(Predictor.sigmoid)
    def prediction(outputs: Array[Double]): Any =
      HeldRow.vector(outputs.map(score => if (score.isNaN) Double.NaN else if (score > 0) 1.0 else 0.0))
    def label(outputs: Array[Double], names: Seq[String]): String =
      outputs.indices.filter(outputs(_) > 0).map(name(_, names)).mkString(",")
  }

  private def of(best: Int): Double = if (best < 0) Double.NaN else best.toDouble
  private def name(best: Int, names: Seq[String]): String =
    if (best < 0) null else names.applyOrElse(best, (at: Int) => at.toString)
}
