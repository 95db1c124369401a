package sparkdlbench.engine.libtorch

import sparkdlbench.engine.Evaluation
import sparkdlbench.loss.BatchLoss
import sparkdlbench.vector.FlatBuffer

import java.nio.LongBuffer

/** The run's loss over the network's output. */
private[libtorch] trait LossPass extends AutoCloseable {

  /** For one number of rows. */
  def bind(rows: Int): BoundLoss
}

private[libtorch] trait BoundLoss extends AutoCloseable {

  /** The sum of the rows' losses. */
  def forward(labels: LongBuffer): Double

  /** After `forward`: writes the gradient of `weight` × that sum, with respect to the output. */
  def backward(labels: LongBuffer, weight: Float): Unit

  /** The loss with what else an evaluation tells. */
  def evaluate(labels: LongBuffer): Evaluation
}

/**
 * One that the JVM computes: of few outputs a row, so that its own loop is quick enough.
 *
 * @param outputs
 *   row-major
 * @param gradients
 *   where the weighted gradient goes, the same shape
 */
private[libtorch] final class JvmPass(loss: BatchLoss, outputs: FlatBuffer, gradients: FlatBuffer) extends LossPass {
  def bind(rows: Int): BoundLoss = new BoundLoss {
    def forward(labels: LongBuffer): Double = loss.sum(outputs.floats, labels, rows)
    def backward(labels: LongBuffer, weight: Float): Unit =
      loss.gradient(outputs.floats, labels, rows, weight, gradients.floats)
    def evaluate(labels: LongBuffer): Evaluation = Evaluation.of(loss, outputs.floats, labels, rows)
    def close(): Unit = ()
  }
  def close(): Unit = ()
}
