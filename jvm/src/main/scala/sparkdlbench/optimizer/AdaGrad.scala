package sparkdlbench.optimizer

import sparkdlbench.config.{Key, Settings}
import sparkdlbench.vector.{FloatOps, Staging}

import java.nio.FloatBuffer

/**
 * AdaGrad (Duchi, Hazan and Singer, JMLR 12, 2011) as PyTorch's `torch.optim.Adagrad` computes it, where g is the gradient, w the
 * weights and s the sum of squares (zero at first):
 * {{{
 * d = g + weight_decay × w
 * s = s + d²
 * w = w − learning_rate × d / (√s + epsilon)
 * }}}
 * Dean et al. (NIPS 2012) found it to make asynchronous training robust. State: 4 bytes a value.
 */
final class AdaGradVariant extends OptimizerVariant {
  def name = "adagrad"
  def doc = "AdaGrad: each weight's learning rate falls with the sum of its squared gradients"
  override def keys: Seq[Key[_]] = Seq(Adam.epsilon, SgdVariant.weightDecay)
  def create(slice: ParameterSlice, settings: Settings): Optimizer = new AdaGrad(
    slice.multipliers,
    LearningRateSchedule.learningRate(settings),
    settings(Adam.epsilon).toFloat,
    settings(SgdVariant.weightDecay).toFloat
  )
}

private[optimizer] final class AdaGrad(
    multipliers: Multipliers,
    learningRate: Long => Float,
    epsilon: Float,
    weightDecay: Float
) extends Optimizer {
  private val length = multipliers.length
  private val squares = new Array[Float](length)

  def state: Map[String, Array[Float]] = Map("sum_of_squares" -> squares)

  def update(weights: FloatBuffer, gradient: FloatBuffer, step: Long): Unit = {
    Optimizer.requireLengths(length, weights, gradient)
    val rate = learningRate(step)
    val staging = Staging.get()
    val (w, g, s) = (staging.first, staging.second, staging.third)
    multipliers.pieces.foreach { piece =>
      val (ownRate, ownDecay) = (rate * piece.rate, weightDecay * piece.decay)
      FloatOps.eachChunk(piece.until - piece.from) { (chunk, size) =>
        val at = piece.from + chunk
        weights.get(weights.position() + at, w, 0, size)
        gradient.get(gradient.position() + at, g, 0, size)
        System.arraycopy(squares, at, s, 0, size)
        AdaGrad.descend(w, g, s, size, ownRate, epsilon, ownDecay)
        System.arraycopy(s, 0, squares, at, size)
        weights.put(weights.position() + at, w, 0, size)
      }
    }
  }
}

private[optimizer] object AdaGrad {
  private def descend(
      w: Array[Float],
      g: Array[Float],
      squares: Array[Float],
      size: Int,
      rate: Float,
      epsilon: Float,
      decay: Float
  ): Unit = {
    var i = 0
    while (i < size) {
      val direction = g(i) + decay * w(i)
      val sum = ((squares(i) + direction * direction) + Grid.Squares) - Grid.Squares
      squares(i) = sum
      w(i) -= rate * direction / (math.sqrt(sum.toDouble).toFloat + epsilon)
      i += 1
    }
  }
}
