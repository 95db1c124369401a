package sparkdlbench.engine.bigdl

import sparkdlbench.data.Batch
import sparkdlbench.engine.{Engine, Evaluation, RankGather}
import sparkdlbench.loss.{BatchLoss, ClassCounter, Target}
import sparkdlbench.model.{Initializers, ModelSpec}
import sparkdlbench.vector.{FlatBuffer, VectorMemory}

import java.nio.{FloatBuffer, LongBuffer}
import java.util.{Arrays, LinkedHashMap => JavaLinkedHashMap, Map => JavaMap}

/**
 * BigDL's modules over their compact storage (`getParameters`), whose layout is that of our flat buffer. BigDL's storage is an array on
 * the heap and ours is direct memory, so a step copies all parameters in, and each layer's gradients out when they are final. The
 * loss is ours.
 *
 * @param maxRows
 *   most rows of a batch
 * @param seed
 *   of dropout masks
 * @param inJvm
 *   a loss that the JVM computes; None: softmax cross-entropy, with `classWeights` and without rows whose label is `ignored`
 * @param vectors
 *   where parameters and gradients lie
 */
private[bigdl] final class BigDlEngine(
    spec: ModelSpec,
    maxRows: Int,
    seed: Long,
    library: BigDlLibrary,
    inJvm: Option[BatchLoss] = None,
    classWeights: Option[Array[Float]] = None,
    ignored: Option[Int] = None,
    vectors: VectorMemory = VectorMemory.Own
) extends Engine {
  val parameters = vectors.vector(spec.parameterCount)
  val gradients = vectors.vector(spec.parameterCount)
  val statistics = new FlatBuffer(spec.statisticsCount)
  Initializers.fillStatistics(spec, statistics)
  private val width = spec.inputShape.product
  private val network = new BigDlNetwork(library, spec, seed, statistics)
  private val whole = library.sequential(network.modules)
  private val (held, heldGradients) = whole.compacted()
  checkLayout()

  /** Each layer's part of the flat buffers. */
  private val ranges: IndexedSeq[Option[(Int, Int)]] = spec.layers.map { layer =>
    val own = BigDlNetwork.tensorsOf(layer, spec.layout)
    if (own.isEmpty) None else Some((own.head.offset, own.last.offset + own.last.length))
  }.toIndexedSeq

  def join(exchange: RankGather): Unit = () // no layer of it works over other ranks' rows

  def step(batch: Batch, weight: Float, onBucketReady: (Int, Int) => Unit): Double =
    if (batch.rows == 0) {
      zero()
      onBucketReady(0, gradients.length)
      0.0
    } else {
      whole.train()
      val loss = lossOf(batch.rows, forward(batch, training = true))
      Arrays.fill(heldGradients, 0f)
      network.backward(
        library.tensor(loss.gradient(batch.labels, weight), Seq(batch.rows, spec.classes)),
        ranges(_).foreach { case (from, until) =>
          gradients.floats.put(from, heldGradients, from, until - from)
          onBucketReady(from, until)
        }
      )
      loss.sum(batch.labels)
    }

  def evaluate(batch: Batch): Evaluation =
    if (batch.rows == 0) Evaluation(0, 0.0, 0)
    else {
      whole.evaluate()
      lossOf(batch.rows, forward(batch, training = false)).evaluate(batch.labels)
    }

  def predict(batch: Batch, scores: FloatBuffer): Unit = if (batch.rows > 0) {
    whole.evaluate()
    val dense = forward(batch, training = false).contiguous
    scores.put(0, dense.array, dense.offset, batch.rows * spec.classes)
    ()
  }

  def facts: Map[String, String] = {
    library.pinThread()
    library.facts ++ Map("threads" -> "1", "compute" -> "fp32")
  }

  def close(): Unit = inputs.clear()

  /** The class scores. */
  private def forward(batch: Batch, training: Boolean): BigDlTensor = {
    require(batch.rows <= maxRows, s"a batch of ${batch.rows} rows was given to an engine loaded for at most $maxRows")
    library.pinThread()
    parameters.floats.get(0, held, 0, held.length)
    val (array, input) = inputs.get(batch.rows)
    batch.features.get(0, array, 0, array.length)
    network.forward(input, batch, training)
  }

  private def zero(): Unit = {
    Arrays.fill(heldGradients, 0f)
    gradients.floats.put(0, heldGradients, 0, gradients.length)
    ()
  }

  /** BigDL's compact storage holds each tensor where the specification's layout has it, or the two are no longer interchangeable. */
  private def checkLayout(): Unit = {
    val found = whole.parameters.map(tensor => (tensor.offset, tensor.length))
    val expected = spec.layout.map(tensor => (tensor.offset, tensor.length))
    if (found != expected)
      throw new IllegalStateException(
        s"BigDL keeps the parameters of '${spec.name}' at $found, and its layout is $expected"
      )
  }

  /** Tensors for the numbers of rows used last. */
  private object inputs {
    private val kept = new JavaLinkedHashMap[Int, (Array[Float], BigDlTensor)](16, 0.75f, true) {
      override def removeEldestEntry(eldest: JavaMap.Entry[Int, (Array[Float], BigDlTensor)]): Boolean = size > 8
    }

    def get(rows: Int): (Array[Float], BigDlTensor) = {
      if (!kept.containsKey(rows)) {
        val array = new Array[Float](Math.multiplyExact(rows, width))
        kept.put(rows, (array, library.tensor(array, rows +: spec.inputShape)))
      }
      kept.get(rows)
    }

    def clear(): Unit = kept.clear()
  }

  private def lossOf(rows: Int, output: BigDlTensor): Loss =
    inJvm.fold[Loss](new SoftmaxLoss(rows, output))(new JvmLoss(rows, output, _))

  private trait Loss {
    def sum(labels: LongBuffer): Double

    /** Of `weight` × the sum. */
    def gradient(labels: LongBuffer, weight: Float): Array[Float]
    def evaluate(labels: LongBuffer): Evaluation
  }

  private final class JvmLoss(rows: Int, output: BigDlTensor, loss: BatchLoss) extends Loss {
    private val outputs = {
      val dense = output.contiguous
      FloatBuffer.wrap(dense.array, dense.offset, rows * spec.classes).slice()
    }
    def sum(labels: LongBuffer): Double = loss.sum(outputs, labels, rows)
    def gradient(labels: LongBuffer, weight: Float): Array[Float] = {
      val made = new Array[Float](rows * spec.classes)
      loss.gradient(outputs, labels, rows, weight, FloatBuffer.wrap(made))
      made
    }
    def evaluate(labels: LongBuffer): Evaluation = Evaluation.of(loss, outputs, labels, rows)
  }

  /** Softmax cross-entropy of the class scores, rows × classes. */
  private final class SoftmaxLoss(rows: Int, scores: BigDlTensor) extends Loss {
    private val (values, first) = {
      val dense = scores.contiguous
      (dense.array, dense.offset)
    }
    private val classes = spec.classes

    def sum(labels: LongBuffer): Double = (0 until rows)
      .filter(counts(labels, _))
      .map { row =>
        factor(labels, row) * (logarithm(row) - values(at(row, label(labels, row))).toDouble)
      }
      .sum

    /** What the row's loss is multiplied by. */
    private def factor(labels: LongBuffer, row: Int): Float =
      Target.weight(labels, row) * classWeights.fold(1f)(_(label(labels, row)))

    def gradient(labels: LongBuffer, weight: Float): Array[Float] = {
      val made = new Array[Float](rows * classes)
      var row = 0
      while (row < rows) {
        if (counts(labels, row)) {
          val whole = logarithm(row)
          val own = weight * factor(labels, row)
          var index = 0
          while (index < classes) {
            made(row * classes + index) = (own * math.exp(values(at(row, index)) - whole)).toFloat
            index += 1
          }
          made(row * classes + label(labels, row)) -= own
        }
        row += 1
      }
      made
    }

    def evaluate(labels: LongBuffer): Evaluation = {
      val found =
        ClassCounter.of(FloatBuffer.wrap(values, first, rows * classes).slice(), labels, rows, classes, ignored)
      Evaluation(found.rows, sum(labels), found.correct, counts = Some(found))
    }

    /** Logarithm of the sum of a row's exponentials. */
    private def logarithm(row: Int): Double = {
      var (most, index) = (Float.NegativeInfinity, 0)
      while (index < classes) { most = math.max(most, values(at(row, index))); index += 1 }
      var sum = 0.0
      index = 0
      while (index < classes) { sum += math.exp(values(at(row, index)).toDouble - most); index += 1 }
      most + math.log(sum)
    }

    private def at(row: Int, index: Int): Int = first + row * classes + index

    private def counts(labels: LongBuffer, row: Int): Boolean = !ignored.contains(labels.get(row).toInt)

    private def label(labels: LongBuffer, row: Int): Int = {
      val value = labels.get(row).toInt
      if (value < 0 || value >= classes)
        throw new IllegalArgumentException(s"row $row has the label $value; labels are 0 until $classes")
      value
    }
  }
}
