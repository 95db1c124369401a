package sparkdlbench.predict

import sparkdlbench.config.{RunKeys, Settings, Variants}
import sparkdlbench.data.Batch
import sparkdlbench.engine.EngineVariant
import sparkdlbench.vector.FlatBuffer
import sparkdlbench.results.SavedModel

import java.nio.{ByteBuffer, ByteOrder, FloatBuffer}

/**
 * A model in an engine. Its native memory depends on the model and the batch alone, and is given back by `close`, which may come from
 * another thread than `scores`: where Python reads a task's rows, Spark ends the task while a thread of its own may still compute.
 *
 * @param batch
 *   most rows that are computed at once
 */
private[sparkdlbench] final class Predictor(model: SavedModel, batch: Int, threads: Int, settings: Settings)
    extends AutoCloseable {
  import model.spec
  private val engine = Variants
    .find[EngineVariant]("engine", settings(RunKeys.engine))
    .load(spec, batch, threads, settings)
  engine.parameters.floats.put(0, model.weights)
  engine.statistics.floats.put(0, model.statistics)
  private val width = spec.inputShape.product
  private val features = new FlatBuffer(Math.multiplyExact(batch, width))
  private val labels = ByteBuffer.allocateDirect(8 * batch).order(ByteOrder.nativeOrder()).asLongBuffer()
  private val scores = new Array[Float](Math.multiplyExact(batch, spec.classes))

  /**
   * The scores of each class before any softmax.
   *
   * @param rows
   *   at most `batch`, of `model.input.width` finite values each, which are overwritten
   */
  def scores(rows: Seq[Array[Float]]): Seq[Array[Double]] = synchronized {
    if (closed) throw new IllegalStateException("the predictor is closed")
    require(rows.size <= batch, s"${rows.size} rows were given to a predictor of at most $batch")
    var at = 0
    rows.foreach { row =>
      features.floats.put(at * width, model.input.features(row))
      at += 1
    }
    engine.predict(Batch(at, features.floats, labels), FloatBuffer.wrap(scores))
    (0 until at).map(scoresOf)
  }

  private def scoresOf(row: Int): Array[Double] = {
    val found = new Array[Double](spec.classes)
    var at = 0
    while (at < found.length) { found(at) = scores(row * found.length + at).toDouble; at += 1 }
    found
  }

  private var closed = false

  /** Once: the second call does nothing. */
  def close(): Unit = synchronized {
    if (!closed) {
      closed = true
      engine.close()
    }
  }
}

private[sparkdlbench] object Predictor {

  /** In fp64, after the highest score is subtracted. */
  def softmax(scores: Array[Double]): Array[Double] = {
    val most = scores.max
    val powers = scores.map(score => math.exp(score - most))
    val sum = powers.sum
    powers.map(_ / sum)
  }

  /** The class with the highest score; the lowest of them wins a tie. -1 where none is a number: the training has diverged. */
  def best(scores: Array[Double]): Int =
    scores.indices.foldLeft(-1) { (best, index) =>
      if (scores(index) > (if (best < 0) Double.NegativeInfinity else scores(best))) index else best
    }
}
