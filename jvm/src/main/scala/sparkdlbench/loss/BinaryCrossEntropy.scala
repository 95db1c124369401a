package sparkdlbench.loss

import sparkdlbench.config.{Key, Settings}

import java.nio.{FloatBuffer, LongBuffer}

/**
 * Each output is a question of its own, whose answer is yes with the probability sigmoid(output): −log of that where the label is 1, −log(1 −
 * it) where it is 0, in nats, as PyTorch's BCEWithLogitsLoss; of labels between them the mean that they say. Its slope is sigmoid(output) −
 * label. Where classes exclude each other and there are more than two, take `cross-entropy`.
 */
final class BinaryCrossEntropy extends Loss {
  def name = "binary-cross-entropy"
  def doc = "Sigmoid cross-entropy of each output, in nats: labels are 0 or 1, one or several a row"
  override def keys: Seq[Key[_]] = Seq(IgnoredLabel.key)
  def isRegression: Boolean = false
  override def isBinary: Boolean = true

  override def inJvm(settings: Settings, outputs: Int): Option[BatchLoss] =
    Some(new BatchAnswers(outputs, IgnoredLabel.of(settings)))
}

/**
 * The loss of a row is the mean over its outputs. In fp64, by formulas that neither overflow nor lose digits however large an output is.
 *
 * @param outputs
 *   of a row, each with a label
 * @param ignored
 *   label of outputs that do not count
 */
final class BatchAnswers(outputs: Int, ignored: Option[Int]) extends BatchLoss {
  private val share = 1.0 / outputs
  private val ignores = ignored.nonEmpty
  private val ignoredLabel = ignored.fold(0f)(_.toFloat)

  def sum(found: FloatBuffer, labels: LongBuffer, rows: Int): Double = {
    var sum = 0.0
    var row = 0
    while (row < rows) {
      sum += Target.weight(labels, row * outputs) * loss(found, labels, row)
      row += 1
    }
    sum
  }

  private def loss(found: FloatBuffer, labels: LongBuffer, row: Int): Double = {
    var sum = 0.0
    var at = row * outputs
    while (at < (row + 1) * outputs) {
      val label = Target.of(labels, at)
      if (counts(label)) sum += BatchAnswers.value(found.get(at).toDouble, label.toDouble)
      at += 1
    }
    sum * share
  }

  def gradient(found: FloatBuffer, labels: LongBuffer, rows: Int, weight: Float, into: FloatBuffer): Unit = {
    var row = 0
    while (row < rows) {
      val own = weight * Target.weight(labels, row * outputs) * share
      var at = row * outputs
      while (at < (row + 1) * outputs) {
        val label = Target.of(labels, at)
        into.put(
          at,
          if (counts(label)) (own * BatchAnswers.slope(found.get(at).toDouble, label.toDouble)).toFloat else 0f
        )
        at += 1
      }
      row += 1
    }
  }

  def measured(found: FloatBuffer, labels: LongBuffer, rows: Int): BatchMeasures =
    if (outputs == 1) answers(found, labels, rows) else severalAnswers(found, labels, rows)

  private def answers(found: FloatBuffer, labels: LongBuffer, rows: Int): BatchMeasures = {
    val counter = new ClassCounter(2)
    var row = 0
    while (row < rows) {
      val label = Target.of(labels, row)
      if (counts(label)) {
        val score = found.get(row)
        counter.add(BatchAnswers.yes(label), if (score.isNaN) -1 else if (score > 0) 1 else 0, score)
      }
      row += 1
    }
    val counted = counter.result
    BatchMeasures(counted.rows, counted.correct, counts = Some(counted))
  }

  private def severalAnswers(found: FloatBuffer, labels: LongBuffer, rows: Int): BatchMeasures = {
    val counter = new AnswerCounter(outputs)
    var (counted, correct, row) = (0L, 0L, 0)
    while (row < rows) {
      var (some, right, at) = (false, true, 0)
      while (at < outputs) {
        val label = Target.of(labels, row * outputs + at)
        if (counts(label)) {
          val (yes, said) = (BatchAnswers.yes(label) == 1, found.get(row * outputs + at) > 0)
          counter.add(at, yes, said)
          some = true
          right &= yes == said
        }
        at += 1
      }
      if (some) counted += 1
      if (some && right) correct += 1
      row += 1
    }
    BatchMeasures(counted, correct, counts = Some(counter.result))
  }

  private def counts(label: Float): Boolean = !ignores || label != ignoredLabel
}

private[loss] object BatchAnswers {

  /** max(x, 0) − x · label + log(1 + exp(−|x|)) */
  def value(x: Double, label: Double): Double = math.max(x, 0.0) - x * label + math.log1p(math.exp(-math.abs(x)))
  def slope(x: Double, label: Double): Double = sigmoid(x) - label

  def sigmoid(x: Double): Double =
    if (x >= 0) 1 / (1 + math.exp(-x))
    else {
      val power = math.exp(x)
      power / (1 + power)
    }

  /** Whether a label means yes: 1 or 0. */
  def yes(label: Float): Int = if (label > 0.5f) 1 else 0
}
