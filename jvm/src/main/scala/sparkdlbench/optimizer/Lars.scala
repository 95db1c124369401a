package sparkdlbench.optimizer

import sparkdlbench.config.{Key, Settings}
import sparkdlbench.vector.{FloatOps, Staging}

import java.nio.FloatBuffer

/**
 * Layer-wise adaptive rate scaling (You, Gitman and Ginsburg, "Large batch training of convolutional networks", 2017,
 * algorithm 1), for large batches. For each tensor of parameters, with w its weights, g its gradient, v the velocity (zero at
 * first), β the weight decay and the Euclidean lengths of the whole tensors:
 * {{{
 * λ = trust × ‖w‖ / (‖g‖ + β ‖w‖)
 * v = momentum × v + learning_rate × λ × (g + β w)
 * w = w − v
 * }}}
 * A layer's weight and its bias are tensors of their own. Where ‖w‖ or ‖g‖ is 0 (a bias at the start), λ = 1: with the definition
 * it could never move. A tensor's factors (`Multipliers`) multiply learning_rate and β. The owners of a tensor's parts sum the squares of their parts first (16 bytes a tensor to rank 0 and back). State: 4 bytes a value
 * with momentum.
 */
final class LarsVariant extends OptimizerVariant {
  import LarsVariant._

  def name = "lars"
  def doc = "LARS: momentum whose learning rate is scaled for each layer by the lengths of its weights and its gradient"
  override def keys: Seq[Key[_]] = Seq(SgdVariant.momentum, SgdVariant.weightDecay, trust)
  override def layerwise = true

  def create(slice: ParameterSlice, settings: Settings): Optimizer = new Lars(
    slice.length,
    slice.layout.zipWithIndex
      .map { case (tensor, index) =>
        val first = math.max(slice.from, tensor.offset)
        val end = math.min(slice.until, tensor.offset + tensor.length)
        Lars.Part(index, first - slice.from, end - first, tensor.rate, tensor.decay)
      }
      .filter(_.size > 0),
    slice.layout.map(_.decay).toIndexedSeq,
    LearningRateSchedule.learningRate(settings),
    settings(SgdVariant.momentum).toFloat,
    settings(SgdVariant.weightDecay),
    settings(trust)
  )
}

object LarsVariant {
  val trust: Key[Double] = Key.number(
    "optimizer.trust",
    "0.001",
    0,
    "Trust coefficient of lars: a layer's step is this share of its weights' length times the learning rate"
  )
}

private[optimizer] final class Lars(
    length: Int,
    parts: Seq[Lars.Part],
    decays: IndexedSeq[Double],
    learningRate: Long => Float,
    momentum: Float,
    weightDecay: Double,
    trust: Double
) extends LayerwiseOptimizer {
  private val velocity = new Array[Float](if (momentum > 0) length else 0)

  /** By tensor; null until the next step's lengths are told. */
  private var ratios: Array[Double] = _

  def state: Map[String, Array[Float]] = if (momentum > 0) Map("velocity" -> velocity) else Map.empty

  def addSquares(weights: FloatBuffer, gradient: FloatBuffer, into: Array[Double]): Unit = parts.foreach { part =>
    into(2 * part.tensor) += FloatOps.sumOfSquares(part.of(weights))
    into(2 * part.tensor + 1) += FloatOps.sumOfSquares(part.of(gradient))
  }

  def squaresAre(whole: Array[Double]): Unit = ratios = Array.tabulate(whole.length / 2) { tensor =>
    val (ofWeights, ofGradient) = (math.sqrt(whole(2 * tensor)), math.sqrt(whole(2 * tensor + 1)))
    if (ofWeights == 0 || ofGradient == 0) 1.0
    else trust * ofWeights / (ofGradient + weightDecay * decays(tensor) * ofWeights)
  }

  def update(weights: FloatBuffer, gradient: FloatBuffer, step: Long): Unit = {
    Optimizer.requireLengths(length, weights, gradient)
    if (ratios == null) throw new IllegalStateException(s"step $step: an update before the tensors' lengths were known")
    val rate = learningRate(step)
    parts.foreach(part => updatePart(weights, gradient, part, (rate * part.rate * ratios(part.tensor)).toFloat))
    ratios = null
  }

  private def updatePart(weights: FloatBuffer, gradient: FloatBuffer, part: Lars.Part, rate: Float): Unit = {
    val staging = Staging.get()
    val (w, g, v) = (staging.first, staging.second, staging.third)
    FloatOps.eachChunk(part.size) { (offset, size) =>
      val at = part.at + offset
      weights.get(weights.position() + at, w, 0, size)
      gradient.get(gradient.position() + at, g, 0, size)
      if (momentum > 0) System.arraycopy(velocity, at, v, 0, size) else java.util.Arrays.fill(v, 0, size, 0f)
      Lars.descend(w, g, v, size, rate, (weightDecay * part.decay).toFloat, momentum)
      if (momentum > 0) System.arraycopy(v, 0, velocity, at, size)
      weights.put(weights.position() + at, w, 0, size)
    }
  }
}

private[optimizer] object Lars {

  /** Values [`at`, `at + size`) of the slice, which belong to the model's tensor number `tensor`; its factors. */
  final case class Part(tensor: Int, at: Int, size: Int, rate: Double, decay: Double) {
    def of(values: FloatBuffer): FloatBuffer = values.slice(values.position() + at, size)
  }

  private def descend(
      w: Array[Float],
      g: Array[Float],
      v: Array[Float],
      size: Int,
      rate: Float,
      decay: Float,
      keep: Float
  ): Unit = {
    var i = 0
    while (i < size) {
      val next = ((keep * v(i) + rate * (g(i) + decay * w(i))) + Grid.Moments) - Grid.Moments
      v(i) = next
      w(i) -= next
      i += 1
    }
  }
}
