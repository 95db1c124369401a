package sparkdlbench.data

import sparkdlbench.common.Json

import scala.collection.immutable.ListMap

/**
 * @param weight
 *   the sum of the rows' weights; the rows' number where all count alike
 * @param low
 *   of rows with a weight above 0, as `high`
 * @param mean
 *   sum(weight × value) / sum(weight)
 * @param squares
 *   sums of weight × the squared difference from the mean
 * @param labels
 *   rows by class
 */
private[data] final case class Moments(
    count: Long,
    weight: Double,
    low: Array[Double],
    high: Array[Double],
    mean: Array[Double],
    squares: Array[Double],
    labels: Map[Int, Long]
) {

  /** Chan, Golub, LeVeque: Updating formulae and a pairwise algorithm for computing sample variances, 1979. */
  def merge(other: Moments): Moments =
    if (count == 0) other
    else if (other.count == 0) this
    else {
      val sum = weight + other.weight
      val (means, all) = (new Array[Double](mean.length), new Array[Double](mean.length))
      mean.indices.foreach { i =>
        val apart = other.mean(i) - mean(i)
        if (sum > 0) {
          means(i) = mean(i) + apart * other.weight / sum
          all(i) = squares(i) + other.squares(i) + apart * apart * weight / sum * other.weight
        }
      }
      val classes = (labels.keySet ++ other.labels.keySet).map { label =>
        label -> (labels.getOrElse(label, 0L) + other.labels.getOrElse(label, 0L))
      }
      Moments(
        count + other.count,
        sum,
        low.indices.map(i => math.min(low(i), other.low(i))).toArray,
        high.indices.map(i => math.max(high(i), other.high(i))).toArray,
        means,
        all,
        classes.toMap
      )
    }

  /** sqrt(sum(weight × (value − mean)²) / sum(weight)), of each value of a row. */
  def deviation: Array[Double] = squares.map(sum => if (weight > 0) math.sqrt(sum / weight) else 0.0)

  /** @param numbers how many labels a row has that are numbers, behind its values; 0: its label is a class */
  def toMap(numbers: Int): ListMap[String, Any] = {
    def values(each: Array[Double]) = each.dropRight(numbers)
    def ofLabels(each: Array[Double]): Any = if (numbers == 1) each.last else each.takeRight(numbers)
    Json.fields(
      "rows" -> count,
      "min" -> values(low),
      "max" -> values(high),
      "mean" -> values(mean),
      "standard_deviation" -> values(deviation),
      "labels" ->
        (if (numbers > 0)
           ListMap(
             "min" -> ofLabels(low),
             "max" -> ofLabels(high),
             "mean" -> ofLabels(mean),
             "standard_deviation" -> ofLabels(deviation)
           )
         else ListMap(labels.toSeq.sorted.map { case (label, rows) => label.toString -> rows }: _*))
    )
  }
}

private[data] object Moments {
  val none: Moments = Moments(0, 0, Array.empty, Array.empty, Array.empty, Array.empty, Map.empty)
}

/** The running mean and variance of each value of a row (West, Communications of the ACM 22, 1979: Welford's, with weights). One thread. */
private[data] final class RunningMoments(width: Int) {
  private val (mean, squares) = (new Array[Double](width), new Array[Double](width))
  private val low = Array.fill(width)(Double.PositiveInfinity)
  private val high = Array.fill(width)(Double.NegativeInfinity)
  private val labels = scala.collection.mutable.Map.empty[Int, Long]
  private var count = 0L
  private var weights = 0.0

  /** A row of weight 0 is counted, and nothing more. */
  def add(row: Array[Float], label: Int, weight: Double = 1): Unit = {
    count += 1
    labels(label) = labels.getOrElse(label, 0L) + 1
    if (weight > 0) {
      weights += weight
      var i = 0
      while (i < width) {
        val value = row(i).toDouble
        val apart = value - mean(i)
        mean(i) += apart * weight / weights
        squares(i) += weight * apart * (value - mean(i))
        if (value < low(i)) low(i) = value
        if (value > high(i)) high(i) = value
        i += 1
      }
    }
  }

  def result: Moments =
    if (count == 0) Moments.none else Moments(count, weights, low, high, mean, squares, labels.toMap)
}
