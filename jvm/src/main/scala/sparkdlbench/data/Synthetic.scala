package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import sparkdlbench.common.SplitMix
import sparkdlbench.config.{Key, RunKeys, Settings}

import java.nio.{FloatBuffer, LongBuffer}

/**
 * Rows that a function of (seed, id) makes, for benchmarks of any size: class centres and uniform noise. The centres
 * are as far apart as makes two classes overlap by about 0.1 %, whatever the width, so a model can learn them and can
 * be wrong.
 */
final class Synthetic extends DataSource {
  import Synthetic._

  def name = "synthetic"
  def doc = "Learnable rows of any shape and number, made from the seed when read; nothing is stored"
  override def keys: Seq[Key[_]] =
    Seq(rows, testRows, DataKeys.shape, DataKeys.classes, DataKeys.scale) ++ DataKeys.changes

  def inspect(settings: Settings, hadoop: Configuration): DataFacts = {
    val features = shape(settings)
    Pipeline.facts(
      DataFacts(
        settings(rows),
        settings(testRows),
        features,
        settings(DataKeys.classes),
        s"synthetic rows of ${features.mkString(" × ")} values, seed ${settings(RunKeys.seed)}",
        input = RowInput(features, factor = DataKeys.scaleOf(settings, ValueKind.Float32)),
        heldBytes =
          2L * SyntheticRowStore.CircleLength * 4 // rows are made when they are read; the two stores' signs are kept
      ),
      settings
    )
  }

  def open(settings: Settings, hadoop: Configuration): DataSets = {
    val features = shape(settings)
    val factor = DataKeys.scaleOf(settings, ValueKind.Float32).toFloat
    def store(count: Int, stream: Long): RowStore = {
      val made =
        new SyntheticRowStore(count, features.product, settings(DataKeys.classes), settings(RunKeys.seed), stream)
      if (factor == 1f) made else scaled(made, factor)
    }
    val sets = DataSets(store(settings(rows), stream = 1), store(settings(testRows), stream = 2))
    Pipeline.sets(sets, features, settings)
  }

  private def scaled(store: RowStore, factor: Float): RowStore = new ChangedRows(
    store,
    store.width,
    (_: Int, row: Array[Float], out: Array[Float]) => {
      var i = 0
      while (i < row.length) { out(i) = row(i) * factor; i += 1 }
    }
  )
}

object Synthetic {
  private val DefaultWidth = 784

  val rows: Key[Int] = Key.int("data.rows", "10000", 1, "Training rows of the synthetic data set")
  val testRows: Key[Int] = Key.int("data.test_rows", "2000", 1, "Test rows of the synthetic data set")
  def shape(settings: Settings): Seq[Int] =
    if (settings(DataKeys.shape).isEmpty) Seq(DefaultWidth) else settings(DataKeys.shape)
}

/**
 * Row `id` is of class id mod classes: its values are amplitude × centre(class) + noise(id), centres of ±1, noise
 * uniform in [-1, 1).
 *
 * @param stream
 *   keeps training rows apart from test rows of the same id; centres are the same for all streams
 */
private[data] final class SyntheticRowStore(val rows: Int, val width: Int, classes: Int, seed: Long, stream: Long)
    extends RowStore {
  def label(id: Int): Long = (id % classes).toLong

  import SyntheticRowStore._

  /**
   * Class c's centre is the signs from place c × stride on, read in a circle: far smaller than classes × width values.
   */
  private val signs: Array[Float] = {
    // Two centres differ in half of the places, so their distance is amplitude × sqrt(2 × width): 6 standard
    // deviations.
    val amplitude = math.min(1.0, 6 * NoiseDeviation / math.sqrt(2.0 * width)).toFloat
    val random = new SplitMix(SplitMix.mix(seed))
    Array.fill(CircleLength)(if (random.nextLong() < 0) amplitude else -amplitude)
  }

  def read(id: Int, at: Int, features: FloatBuffer, labels: LongBuffer): Unit =
    read(id, at, features, labels, new Array[Float](math.min(width, Staging)))

  override def readAll(ids: Array[Int], from: Int, until: Int, features: FloatBuffer, labels: LongBuffer): Unit = {
    val staging = new Array[Float](math.min(width, Staging))
    var at = from
    while (at < until) { read(ids(at), at - from, features, labels, staging); at += 1 }
  }

  private def read(id: Int, at: Int, features: FloatBuffer, labels: LongBuffer, staging: Array[Float]): Unit = {
    if (id < 0 || id >= rows) throw new IndexOutOfBoundsException(s"row $id of $rows")
    val label = id % classes
    val key = SplitMix.mix(SplitMix.mix(seed ^ stream) ^ id)
    var from = 0
    while (from < width) {
      val count = math.min(staging.length, width - from)
      fill(key, label * CentreStride, from, count, staging)
      features.put(at * width + from, staging, 0, count)
      from += count
    }
    labels.put(at, label.toLong)
  }

  private def fill(key: Long, centre: Int, from: Int, count: Int, staging: Array[Float]): Unit = {
    val (keyLow, keyHigh, circle) = (key.toInt, (key >>> 32).toInt, signs)
    var i = 0
    while (i < count) {
      staging(i) = circle((centre + from + i) & (CircleLength - 1)) + noise(keyLow, keyHigh, from + i)
      i += 1
    }
  }

  /** Uniform in [-1, 1): the mixer of MurmurHash3 over the place in the row, keyed twice. */
  private def noise(keyLow: Int, keyHigh: Int, place: Int): Float = {
    val first = (place * 0x9e3779b9) ^ keyLow
    val second = (first ^ (first >>> 16)) * 0x85ebca6b + keyHigh
    val third = (second ^ (second >>> 13)) * 0xc2b2ae35
    ((third ^ (third >>> 16)) >> 8) * (1.0f / (1 << 23))
  }
}

private[data] object SyntheticRowStore {
  val CircleLength: Int = 1 << 16
  private val CentreStride = 40503 // odd: the first 65,536 classes start at different places
  private val Staging = 4096
  private val NoiseDeviation = 1 / math.sqrt(3)
}
