package sparkdlbench.engine

import sparkdlbench.config.{Axis, Key, RunKeys, Settings, Variant, Variants}
import sparkdlbench.data.Batch
import sparkdlbench.loss.{BatchLoss, ClassCounts, ErrorSums}
import sparkdlbench.model.ModelSpec
import sparkdlbench.vector.{FlatBuffer, VectorMemory}

import java.nio.{FloatBuffer, LongBuffer}

/**
 * Sums over rows; add them up over ranks and divide by `rows`.
 *
 * @param correct
 *   rows that are classified rightly; 0 of a regression
 * @param rows
 *   those that count (`loss.ignore_label`)
 * @param errors
 *   of a regression
 * @param counts
 *   of others
 */
final case class Evaluation(
    rows: Long,
    lossSum: Double,
    correct: Long,
    errors: Option[ErrorSums] = None,
    counts: Option[ClassCounts] = None
) {
  def +(other: Evaluation): Evaluation =
    Evaluation(
      rows + other.rows,
      lossSum + other.lossSum,
      correct + other.correct,
      (errors.toSeq ++ other.errors).reduceOption(_ + _),
      (counts.toSeq ++ other.counts).reduceOption(_ + _)
    )
  def loss: Double = if (rows == 0) 0.0 else lossSum / rows
  def accuracy: Double = if (rows == 0) 0.0 else correct.toDouble / rows

  /** The accuracy; None of a regression, which has none. */
  def classified: Option[Double] = if (errors.isEmpty) Some(accuracy) else None

  /** `mae`, `rmse` and `r2` of a regression, else precision, recall and F1 (`ClassCounts`), by name behind `prefix`. */
  def measures(prefix: String): Seq[(String, Option[Double])] =
    (errors.toSeq.flatMap(_.measures) ++ counts.toSeq.flatMap(_.measures)).map { case (name, value) =>
      s"$prefix$name" -> value
    }
}

object Evaluation {

  /** Of a batch whose loss the JVM computes. */
  def of(loss: BatchLoss, outputs: FloatBuffer, labels: LongBuffer, rows: Int): Evaluation = {
    val found = loss.measured(outputs, labels, rows)
    Evaluation(found.rows, loss.sum(outputs, labels, rows), found.correct, found.errors, found.counts)
  }
}

/**
 * One model, loaded, for one rank. Owns native memory; used by one thread at a time (which may change between calls).
 * Loss is that of the run (`loss.name`).
 */
trait Engine extends AutoCloseable {

  /** Current weights, written by the synchronisation between steps. Layout: `spec.layout`. */
  def parameters: FlatBuffer

  /** Gradients of the last `step`; every value is overwritten by each step. Same layout as `parameters`. */
  def gradients: FlatBuffer

  /**
   * Running statistics of batch normalisation, which each `step` changes by its own rows and `evaluate` reads. Layout:
   * `spec.statistics`. Whoever trains with several engines averages them before `evaluate`.
   */
  def statistics: FlatBuffer

  /**
   * Gives the layers that work over all ranks' rows (`ModelSpec.exchanges`) their way to the other ranks, before the first `step`;
   * all ranks call `step` equally often from then on, those without rows too. Without it the engine's rank is the only one.
   */
  def join(exchange: RankGather): Unit

  /**
   * Forward and backward pass. The gradient is that of `weight` × (sum of the rows' losses): with weight = 1 / global
   * batch, the sum of all ranks' gradients is the gradient of the global mean loss.
   *
   * @param onBucketReady
   *   called as (from, until) when that range of `gradients` is final and the pass has done with the same range of
   *   `parameters` (another rank's new weights may land there from then on); ranges come from the last layer to the first
   *   and cover the buffer exactly once. With rows = 0 the gradient is zero and one call covers all.
   * @return
   *   the sum of the rows' losses (not weighted)
   */
  def step(batch: Batch, weight: Float, onBucketReady: (Int, Int) => Unit): Double

  /** Forward pass only. */
  def evaluate(batch: Batch): Evaluation

  /**
   * Forward pass only: writes the class scores before any softmax, rows × classes, to `scores` from its start on. The batch's labels are
   * not read.
   */
  def predict(batch: Batch, scores: FloatBuffer): Unit

  /** What is really loaded, for run.json: library versions, BLAS, threads, instruction set, MKL_CBWR. */
  def facts: Map[String, String]
}

trait EngineVariant extends Variant {

  /**
   * Throws a ConfigurationException, with the reason, where it cannot compute this model with these settings. On the driver, before any
   * job; what hosts lack is found by `load`.
   *
   * @param threads
   *   compute threads of a rank
   */
  def check(spec: ModelSpec, threads: Int, settings: Settings): Unit

  /** What this host lacks for it and how to bring that; None where nothing is known to lack. Asked where the driver's host runs the workers. */
  def lacking(settings: Settings): Option[String] = None

  /**
   * @param rows
   *   the largest batch that `step` or `evaluate` will be given
   * @param threads
   *   compute threads of this rank
   * @param vectors
   *   where its parameters and gradients best lie; those of a process of its own lie where that reaches them
   */
  def load(
      spec: ModelSpec,
      rows: Int,
      threads: Int,
      settings: Settings,
      vectors: VectorMemory = VectorMemory.Own
  ): Engine

  /** What a loaded engine will take, besides its parameters and gradients. */
  def memory(spec: ModelSpec, rows: Int): EngineMemory
}

/**
 * Bytes.
 *
 * @param direct
 *   direct buffers of the JVM
 * @param native
 *   memory that the JVM does not know of, an upper bound
 * @param library
 *   native code and its own needs, once a process; a rule of thumb
 * @param heap
 *   objects of the JVM, an upper bound
 */
final case class EngineMemory(direct: Long, native: Long, library: Long, heap: Long = 0)

final class EngineAxis extends Axis {
  def place = 5
  def name = "engine"
  def key: Key[String] = RunKeys.engine
  def variants: Seq[Variant] = Variants.all[EngineVariant]
}
