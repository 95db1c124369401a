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
  private val found = new Array[Float](Math.multiplyExact(batch, spec.classes))

  /**
   * Gives it a row of the next `scores`.
   *
   * @param at
   *   its number among them
   * @param stored
   *   `model.input.width` finite values, which are overwritten
   */
  def put(at: Int, stored: Array[Float]): Unit = synchronized {
    check()
    require(at < batch, s"row $at was given to a predictor of at most $batch")
    features.floats.put(at * width, model.input.features(stored)): Unit
  }

  /** The scores of each class before any softmax, of each of the first `rows` that were put. */
  def scores(rows: Int): Array[Array[Double]] = synchronized {
    check()
    engine.predict(Batch(rows, features.floats, labels), FloatBuffer.wrap(found))
    Array.tabulate(rows)(scoresOf)
  }

  private def scoresOf(row: Int): Array[Double] = {
    val own = new Array[Double](spec.classes)
    var at = 0
    while (at < own.length) { own(at) = found(row * own.length + at).toDouble; at += 1 }
    own
  }

  private def check(): Unit = if (closed) throw new IllegalStateException("the predictor is closed")

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
    val found = new Array[Double](scores.length)
    var most = Double.NegativeInfinity
    var at = 0
    while (at < scores.length) { most = math.max(most, scores(at)); at += 1 }
    var sum = 0.0
    at = 0
    while (at < scores.length) { found(at) = math.exp(scores(at) - most); sum += found(at); at += 1 }
    at = 0
    while (at < scores.length) { found(at) /= sum; at += 1 }
    found
  }

  def sigmoid(score: Double): Double = 1 / (1 + math.exp(-score))

  /** The class with the highest score; the lowest of them wins a tie. -1 where none is a number: the training has diverged. */
  def best(scores: Array[Double]): Int = {
    var (best, at) = (-1, 0)
    while (at < scores.length) {
      if (scores(at) > (if (best < 0) Double.NegativeInfinity else scores(best))) best = at
      at += 1
    }
    best
  }
}
