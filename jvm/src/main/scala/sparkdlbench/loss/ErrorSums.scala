package sparkdlbench.loss

import java.nio.{FloatBuffer, LongBuffer}
import scala.collection.immutable.ListMap

/**
 * What a regression's metrics are made of, over rows; parts are added as Chan, Golub and LeVeque do (1979), so that large labels cost no
 * digits.
 *
 * @param absolute
 *   sum of |prediction − label|
 * @param squared
 *   sum of (prediction − label)²
 * @param mean
 *   of the labels
 * @param scatter
 *   sum of (label − mean)²
 */
final case class ErrorSums(rows: Long, absolute: Double, squared: Double, mean: Double, scatter: Double) {
  def +(other: ErrorSums): ErrorSums =
    if (rows == 0) other
    else if (other.rows == 0) this
    else {
      val all = rows + other.rows
      val apart = other.mean - mean
      ErrorSums(
        all,
        absolute + other.absolute,
        squared + other.squared,
        mean + apart * other.rows / all,
        scatter + other.scatter + apart * apart * rows / all * other.rows
      )
    }

  /** Mean absolute error, in the label's unit. */
  def mae: Double = absolute / math.max(1L, rows)

  /** Root of the mean squared error, in the label's unit. */
  def rmse: Double = math.sqrt(squared / math.max(1L, rows))

  /** 1 − squared / scatter: 1 is perfect, 0 as good as the mean of the labels. None where all labels are the same. */
  def r2: Option[Double] = if (scatter > 0) Some(1 - squared / scatter) else None

  /** By name, as records have them. */
  def measures: ListMap[String, Option[Double]] = ListMap("mae" -> Some(mae), "rmse" -> Some(rmse), "r2" -> r2)
}

object ErrorSums {
  val none: ErrorSums = ErrorSums(0, 0, 0, 0, 0)
}

/** A regression's loss; `predictions` has one value a row. */
final class BatchErrors(loss: ErrorLoss) extends BatchLoss {
  def sum(predictions: FloatBuffer, labels: LongBuffer, rows: Int): Double = {
    var sum = 0.0
    var row = 0
    while (row < rows) {
      sum += Target.weight(labels, row) * loss.value(error(predictions, labels, row))
      row += 1
    }
    sum
  }

  def gradient(predictions: FloatBuffer, labels: LongBuffer, rows: Int, weight: Float, into: FloatBuffer): Unit = {
    var row = 0
    while (row < rows) {
      into.put(row, (weight * Target.weight(labels, row) * loss.slope(error(predictions, labels, row))).toFloat)
      row += 1
    }
  }

  def measured(predictions: FloatBuffer, labels: LongBuffer, rows: Int): BatchMeasures =
    BatchMeasures(rows.toLong, 0, errors = Some(errors(predictions, labels, rows)))

  private[loss] def errors(predictions: FloatBuffer, labels: LongBuffer, rows: Int): ErrorSums = {
    var (absolute, squared, mean, scatter) = (0.0, 0.0, 0.0, 0.0)
    var row = 0
    while (row < rows) {
      val (off, label) = (error(predictions, labels, row), Target.of(labels, row).toDouble)
      absolute += math.abs(off)
      squared += off * off
      val apart = label - mean
      mean += apart / (row + 1)
      scatter += apart * (label - mean)
      row += 1
    }
    ErrorSums(rows.toLong, absolute, squared, mean, scatter)
  }

  private def error(predictions: FloatBuffer, labels: LongBuffer, row: Int): Double =
    predictions.get(row).toDouble - Target.of(labels, row)
}
