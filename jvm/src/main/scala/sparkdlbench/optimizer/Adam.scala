package sparkdlbench.optimizer

import sparkdlbench.config.{Key, Settings}
import sparkdlbench.vector.{FloatOps, Staging}

import java.nio.FloatBuffer

/**
 * Adam (Kingma and Ba, ICLR 2015, algorithm 1) as PyTorch's `torch.optim.Adam` computes it, where g is the gradient, w the
 * weights, m and v the moments (zero at first), and t the number of the step from 1:
 * {{{
 * d = g + weight_decay × w
 * m = beta1 × m + (1 − beta1) × d
 * v = beta2 × v + (1 − beta2) × d²
 * w = w − learning_rate / (1 − beta1^t) × m / (√v / √(1 − beta2^t) + epsilon)
 * }}}
 * m and v are kept free of subnormal numbers (`Grid`). State: 8 bytes a value.
 */
final class AdamVariant extends OptimizerVariant {
  def name = "adam"
  def doc = "Adam: steps scaled by running moments of the gradient; weight decay is part of the gradient"
  override def keys: Seq[Key[_]] = Adam.keys
  override def countsUpdates = true
  def create(slice: ParameterSlice, settings: Settings): Optimizer =
    Adam.of(slice.multipliers, settings, decoupled = false)
}

/**
 * AdamW (Loshchilov and Hutter, ICLR 2019, algorithm 2) as PyTorch's `torch.optim.AdamW` computes it: as Adam with d = g, after
 * w = w × (1 − learning_rate × weight_decay). State: 8 bytes a value.
 */
final class AdamWVariant extends OptimizerVariant {
  def name = "adamw"
  def doc = "Adam with weight decay apart from the gradient"
  override def keys: Seq[Key[_]] = Adam.keys
  override def countsUpdates = true
  def create(slice: ParameterSlice, settings: Settings): Optimizer =
    Adam.of(slice.multipliers, settings, decoupled = true)
}

private[optimizer] final class Adam(
    multipliers: Multipliers,
    learningRate: Long => Float,
    beta1: Double,
    beta2: Double,
    epsilon: Float,
    weightDecay: Float,
    decoupled: Boolean
) extends Optimizer {
  private val length = multipliers.length
  private val first = new Array[Float](length)
  private val second = new Array[Float](length)

  def state: Map[String, Array[Float]] = Map("first_moment" -> first, "second_moment" -> second)

  def update(weights: FloatBuffer, gradient: FloatBuffer, step: Long): Unit = {
    Optimizer.requireLengths(length, weights, gradient)
    val rate = learningRate(step)
    val t = (step + 1).toDouble
    val correction = 1 - StrictMath.pow(beta1, t)
    val root = (1 / math.sqrt(1 - StrictMath.pow(beta2, t))).toFloat
    val staging = Staging.get()
    val (w, g, m, v) = (staging.first, staging.second, staging.third, staging.fourth)
    multipliers.pieces.foreach { piece =>
      val (ownRate, ownDecay) = (rate * piece.rate, weightDecay * piece.decay)
      val (keep, shrink) =
        if (decoupled) (0f, (1 - ownRate.toDouble * ownDecay).toFloat) else (ownDecay, 1f)
      val factors =
        Adam.Factors(beta1.toFloat, beta2.toFloat, (ownRate / correction).toFloat, root, epsilon, keep, shrink)
      FloatOps.eachChunk(piece.until - piece.from) { (chunk, size) =>
        val at = piece.from + chunk
        weights.get(weights.position() + at, w, 0, size)
        gradient.get(gradient.position() + at, g, 0, size)
        // The moments are staged too: C2 leaves loops over first(at + i) as they are, at three times the time.
        System.arraycopy(first, at, m, 0, size)
        System.arraycopy(second, at, v, 0, size)
        Adam.descend(w, g, m, v, size, factors)
        System.arraycopy(m, 0, first, at, size)
        System.arraycopy(v, 0, second, at, size)
        weights.put(weights.position() + at, w, 0, size)
      }
    }
  }
}

private[optimizer] object Adam {
  val beta1: Key[Double] =
    Key.share("optimizer.beta1", "0.9", "Share of the first moment that adam and adamw keep")
  val beta2: Key[Double] =
    Key.share("optimizer.beta2", "0.999", "Share of the second moment that adam and adamw keep")
  val epsilon: Key[Double] =
    Key.number("optimizer.epsilon", "1e-8", 0, "Added to the root of the second moment by adam and adamw")
  val keys: Seq[Key[_]] = Seq(beta1, beta2, epsilon, SgdVariant.weightDecay)

  def of(values: Multipliers, settings: Settings, decoupled: Boolean): Optimizer = new Adam(
    values,
    LearningRateSchedule.learningRate(settings),
    settings(beta1),
    settings(beta2),
    settings(epsilon).toFloat,
    settings(SgdVariant.weightDecay).toFloat,
    decoupled
  )

  final case class Factors(
      beta1: Float,
      beta2: Float,
      rate: Float,
      root: Float,
      epsilon: Float,
      decay: Float,
      shrink: Float
  )

  private def descend(
      w: Array[Float],
      g: Array[Float],
      first: Array[Float],
      second: Array[Float],
      size: Int,
      by: Factors
  ): Unit = {
    val (beta1, beta2, rate, root) = (by.beta1, by.beta2, by.rate, by.root)
    val (rest1, rest2) = (1 - beta1, 1 - beta2)
    val (decay, shrink, epsilon) = (by.decay, by.shrink, by.epsilon)
    var i = 0
    while (i < size) {
      val direction = g(i) + decay * w(i)
      val m = ((beta1 * first(i) + rest1 * direction) + Grid.Moments) - Grid.Moments
      val v = ((beta2 * second(i) + rest2 * direction * direction) + Grid.Squares) - Grid.Squares
      first(i) = m
      second(i) = v
      w(i) = w(i) * shrink - rate * (m / (math.sqrt(v.toDouble).toFloat * root + epsilon))
      i += 1
    }
  }
}
