package sparkdlbench.data

import sparkdlbench.config.{Key, Settings}
import sparkdlbench.loss.Target

import java.nio.{FloatBuffer, LongBuffer}

/**
 * Makes a set's values comparable: value → (value − subtract) × factor, after `data.scale`, with numbers from the training
 * rows alone, in which a row counts by its weight (`data.weight`). Each executor computes them when it opens the rows: in the order of the rows and in fp64, so all get the same. Of a
 * sharded set a Spark job does (`ShardedChange`).
 */
object Normalization {
  val mode: Key[String] = Key.choice(
    "data.normalize",
    "none",
    Seq("none", "mean", "standard", "minmax", "channel"),
    "Per value of a row, by the training rows: subtract the mean (mean: Caffe's mean image); also divide by the " +
      "standard deviation (standard); 0 to 1 (minmax). channel: as standard, per channel of an image"
  )

  /** What is subtracted from each value of a row, and what the difference is multiplied by. */
  final case class Change(subtract: Array[Float], factor: Array[Float]) {
    def apply(row: Array[Float], out: Array[Float]): Unit = {
      var i = 0
      while (i < row.length) { out(i) = (row(i) - subtract(i)) * factor(i); i += 1 }
    }
  }

  def of(sets: DataSets, shape: Seq[Int], settings: Settings): DataSets = settings(mode) match {
    case "none" => sets
    case chosen =>
      val change = if (chosen == "minmax") range(sets.train) else of(chosen, moments(sets.train), shape)
      changed(sets, change)
  }

  /** The change of rows whose moments are known. */
  private[data] def change(mode: String, all: sparkdlbench.data.Moments, shape: Seq[Int]): Change =
    if (mode == "minmax") range(all.low.map(_.toFloat), all.high.map(_.toFloat))
    else of(mode, Moments(all.mean, all.deviation), shape)

  private def of(mode: String, moments: Moments, shape: Seq[Int]): Change = mode match {
    case "mean" => moments.change(_ => 1.0)
    case "standard" => moments.change(inverse)
    case "channel" => moments.pooled(math.max(1, shape.product / shape.head)).change(inverse)
  }

  /** Both sets through a change that is known. */
  private[data] def changed(sets: DataSets, change: Change): DataSets = {
    def through(store: RowStore) =
      new ChangedRows(store, store.width, (_: Int, row: Array[Float], out: Array[Float]) => change(row, out))
    sets.copy(train = through(sets.train), test = through(sets.test), change = Some(change))
  }

  /** A value that never changes stays where it is: its deviation is no scale. */
  private def inverse(deviation: Double): Double = if (deviation > 0) 1 / deviation else 1.0

  private final case class Moments(mean: Array[Double], deviation: Array[Double]) {
    def change(factor: Double => Double): Change = Change(mean.map(_.toFloat), deviation.map(factor(_).toFloat))

    /** The moments of all values of a channel together: means of equal numbers of values. */
    def pooled(channelWidth: Int): Moments = {
      val (means, deviations) = (new Array[Double](mean.length), new Array[Double](mean.length))
      mean.indices.by(channelWidth).foreach { from =>
        val own = from until math.min(mean.length, from + channelWidth)
        val centre = own.map(mean).sum / own.size
        val variance =
          own.map(i => deviation(i) * deviation(i) + (mean(i) - centre) * (mean(i) - centre)).sum / own.size
        own.foreach { i => means(i) = centre; deviations(i) = math.sqrt(variance) }
      }
      Moments(means, deviations)
    }
  }

  /** About the first row, so that large means cost no digits. */
  private def moments(store: RowStore): Moments = {
    val (sums, squares) = (new Array[Double](store.width), new Array[Double](store.width))
    val first = new Array[Float](store.width)
    var weights = 0.0
    eachRow(store) { (id, row, weight) =>
      if (id == 0) System.arraycopy(row, 0, first, 0, row.length)
      weights += weight
      var i = 0
      while (i < row.length) {
        val difference = row(i).toDouble - first(i)
        sums(i) += weight * difference
        squares(i) += weight * difference * difference
        i += 1
      }
    }
    val all = if (weights > 0) weights else 1.0
    val means = sums.indices.map(i => first(i) + sums(i) / all).toArray
    val deviations =
      sums.indices
        .map(i => math.sqrt(math.max(0.0, squares(i) / all - (sums(i) / all) * (sums(i) / all))))
        .toArray
    Moments(means, deviations)
  }

  private def range(store: RowStore): Change = {
    val low = Array.fill(store.width)(Float.PositiveInfinity)
    val high = Array.fill(store.width)(Float.NegativeInfinity)
    eachRow(store) { (_, row, weight) =>
      var i = if (weight > 0) 0 else row.length
      while (i < row.length) { low(i) = math.min(low(i), row(i)); high(i) = math.max(high(i), row(i)); i += 1 }
    }
    range(low, high)
  }

  private def range(low: Array[Float], high: Array[Float]): Change =
    Change(low, low.indices.map(i => inverse(high(i).toDouble - low(i)).toFloat).toArray)

  /** @param use gets the row's id, its values and its weight */
  private def eachRow(store: RowStore)(use: (Int, Array[Float], Double) => Unit): Unit = {
    val row = new Array[Float](store.width)
    val (whole, label, one) = (FloatBuffer.wrap(row), LongBuffer.allocate(store.labels), new Array[Int](1))
    var id = 0
    while (id < store.rows) {
      one(0) = id
      store.readAll(one, 0, 1, whole, label)
      use(id, row, Target.weight(label.get(0)).toDouble)
      id += 1
    }
  }
}
