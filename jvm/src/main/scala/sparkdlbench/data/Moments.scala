package sparkdlbench.data

import sparkdlbench.common.Json

import scala.collection.immutable.ListMap

/**
 * @param squares
 *   sums of the squared differences from the mean
 * @param labels
 *   rows by class
 */
private[data] final case class Moments(
    count: Long,
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
      val sum = count + other.count
      val (means, all) = (new Array[Double](mean.length), new Array[Double](mean.length))
      mean.indices.foreach { i =>
        val apart = other.mean(i) - mean(i)
        means(i) = mean(i) + apart * other.count / sum
        all(i) = squares(i) + other.squares(i) + apart * apart * count / sum * other.count
      }
      val classes = (labels.keySet ++ other.labels.keySet).map { label =>
        label -> (labels.getOrElse(label, 0L) + other.labels.getOrElse(label, 0L))
      }
      Moments(
        sum,
        low.indices.map(i => math.min(low(i), other.low(i))).toArray,
        high.indices.map(i => math.max(high(i), other.high(i))).toArray,
        means,
        all,
        classes.toMap
      )
    }

  /** @param numbers how many labels a row has that are numbers, behind its values; 0: its label is a class */
  def toMap(numbers: Int): ListMap[String, Any] = {
    val deviation = squares.map(sum => math.sqrt(sum / math.max(1L, count)))
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
  val none: Moments = Moments(0, Array.empty, Array.empty, Array.empty, Array.empty, Map.empty)
}

/** Welford's running mean and variance of each value of a row. One thread. */
private[data] final class RunningMoments(width: Int) {
  private val (mean, squares) = (new Array[Double](width), new Array[Double](width))
  private val low = Array.fill(width)(Double.PositiveInfinity)
  private val high = Array.fill(width)(Double.NegativeInfinity)
  private val labels = scala.collection.mutable.Map.empty[Int, Long]
  private var count = 0L

  def add(row: Array[Float], label: Int): Unit = {
    count += 1
    labels(label) = labels.getOrElse(label, 0L) + 1
    var i = 0
    while (i < width) {
      val value = row(i).toDouble
      val apart = value - mean(i)
      mean(i) += apart / count
      squares(i) += apart * (value - mean(i))
      if (value < low(i)) low(i) = value
      if (value > high(i)) high(i) = value
      i += 1
    }
  }

  def result: Moments = if (count == 0) Moments.none else Moments(count, low, high, mean, squares, labels.toMap)
}
