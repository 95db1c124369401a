package sparkdlbench.loss

import sparkdlbench.config.Settings

import java.nio.{FloatBuffer, LongBuffer}

/** A loss over the rows of a batch that the JVM computes itself, each row's times its weight. Outputs are row-major, from place 0 on. */
trait BatchLoss {

  /** The sum of the rows' losses. */
  def sum(outputs: FloatBuffer, labels: LongBuffer, rows: Int): Double

  /** Writes the gradient of `weight` × the sum with respect to the outputs, of the same shape, to `into` from place 0 on. */
  def gradient(outputs: FloatBuffer, labels: LongBuffer, rows: Int, weight: Float, into: FloatBuffer): Unit

  /** What else an evaluation tells of the rows, whatever their weights. */
  def measured(outputs: FloatBuffer, labels: LongBuffer, rows: Int): BatchMeasures
}

object BatchLoss {

  /** None of softmax cross-entropy, which engines have in their own kernels. @param outputs of a row */
  def of(settings: Settings, outputs: Int): Option[BatchLoss] = Loss.of(settings).inJvm(settings, outputs)
}

/**
 * Sums over some rows.
 *
 * @param rows
 *   those that count
 * @param correct
 *   of them, those that are classified rightly; 0 of a regression
 */
final case class BatchMeasures(
    rows: Long,
    correct: Long,
    errors: Option[ErrorSums] = None,
    counts: Option[ClassCounts] = None
)
