package sparkdlbench.engine.libtorch

import org.bytedeco.pytorch.global.torch
import org.bytedeco.pytorch.{Scalar, Tensor}
import sparkdlbench.engine.Evaluation
import sparkdlbench.loss.{ClassCounter, ClassCounts, Target}
import sparkdlbench.vector.FlatBuffer

import java.nio.{FloatBuffer, LongBuffer}

/**
 * loss(row) = −log softmax(logits)[label], in nats, times the row's weight; its gradient with respect to the logits is softmax(logits) − onehot(label).
 *
 * @param logits
 *   maxRows × classes
 * @param classWeights
 *   what a row's loss is multiplied by, for each class; None: all count alike
 * @param ignored
 *   label of rows that count neither in the loss nor in an evaluation
 * @param gradients
 *   where the weighted gradient goes, maxRows × classes
 */
private[libtorch] final class SoftmaxCrossEntropy(
    maxRows: Int,
    classes: Int,
    logits: FlatBuffer,
    gradients: FlatBuffer,
    classWeights: Option[Array[Float]] = None,
    ignored: Option[Int] = None
) extends LossPass {
  private val logProbabilities = new FlatBuffer(maxRows * classes)
  private val probabilityValues: FloatBuffer = logProbabilities.floats
  private val gradientValues: FloatBuffer = gradients.floats
  private val weights = classWeights.orNull
  private val ignores = ignored.nonEmpty
  private val ignoredLabel = ignored.getOrElse(0)
  private var weightScalar = new Scalar(1f)
  private var weightOfScalar = 1f

  /** The views for one number of rows. */
  final class Bound private[SoftmaxCrossEntropy] (rows: Int) extends BoundLoss {
    private val logitRows = Tensors.over(logits, 0, Seq(rows, classes))
    private val logProbabilityRows = Tensors.over(logProbabilities, 0, Seq(rows, classes))
    private val gradientRows = Tensors.over(gradients, 0, Seq(rows, classes))

    def forward(labels: LongBuffer): Double = {
      torch.log_softmax_out(logProbabilityRows, logitRows, 1L)
      var sum = 0.0
      var row = 0
      while (row < rows) {
        if (counts(labels, row)) {
          val of = label(labels, row)
          val value = probabilityValues.get(row * classes + of)
          sum -= factor(labels, row, of).toDouble * value
        }
        row += 1
      }
      sum
    }

    def backward(labels: LongBuffer, weight: Float): Unit = {
      torch.exp_out(gradientRows, logProbabilityRows)
      gradientRows.mul_(scalar(weight))
      var row = 0
      while (row < rows) {
        if (counts(labels, row)) {
          val of = label(labels, row)
          val index = row * classes + of
          val own = factor(labels, row, of)
          if (own == 1f) gradientValues.put(index, gradientValues.get(index) - weight)
          else weigh(row, index, weight, own)
        } else clear(row)
        row += 1
      }
    }

    /** What the row's loss is multiplied by: its own weight and its class's. */
    private def factor(labels: LongBuffer, row: Int, of: Int): Float = {
      val own = Target.weight(labels, row)
      if (weights == null) own else own * weights(of)
    }

    private def weigh(row: Int, labelled: Int, weight: Float, factor: Float): Unit = {
      gradientValues.put(labelled, gradientValues.get(labelled) - weight)
      var index = row * classes
      while (index < (row + 1) * classes) { gradientValues.put(index, gradientValues.get(index) * factor); index += 1 }
    }

    private def clear(row: Int): Unit = {
      var index = row * classes
      while (index < (row + 1) * classes) { gradientValues.put(index, 0f); index += 1 }
    }

    def evaluate(labels: LongBuffer): Evaluation = {
      val loss = forward(labels)
      val found = counted(labels)
      Evaluation(found.rows, loss, found.correct, counts = Some(found))
    }

    /** After `forward`: predicted is the class of the highest probability; the lowest class wins a tie, NaN never wins. */
    private def counted(labels: LongBuffer): ClassCounts = {
      val counter = new ClassCounter(classes)
      var row = 0
      while (row < rows) {
        if (counts(labels, row)) counter.add(label(labels, row), highest(row), score(row))
        row += 1
      }
      counter.result
    }

    /** Of two classes: by how much the second's logit is higher. */
    private def score(row: Int): Float =
      if (classes != 2) 0f else logits.floats.get(row * 2 + 1) - logits.floats.get(row * 2)

    def close(): Unit = Seq[Tensor](logitRows, logProbabilityRows, gradientRows).foreach(_.close())
  }

  def bind(rows: Int): Bound = new Bound(rows)

  def close(): Unit = weightScalar.close()

  private def counts(labels: LongBuffer, row: Int): Boolean = !ignores || labels.get(row).toInt != ignoredLabel

  private def label(labels: LongBuffer, row: Int): Int = {
    val value = labels.get(row).toInt
    if (value < 0 || value >= classes)
      throw new IllegalArgumentException(s"row $row has the label $value; labels are 0 until $classes")
    value
  }

  private def highest(row: Int): Int = {
    var best = -1
    var bestValue = Float.NegativeInfinity
    var index = 0
    while (index < classes) {
      val value = probabilityValues.get(row * classes + index)
      if (value > bestValue) { best = index; bestValue = value }
      index += 1
    }
    best
  }

  private def scalar(weight: Float): Scalar = {
    if (weight != weightOfScalar) {
      weightScalar.close()
      weightScalar = new Scalar(weight)
      weightOfScalar = weight
    }
    weightScalar
  }
}
