package sparkdlbench.optimizer

import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Key, Settings}
import sparkdlbench.vector.{FloatOps, Staging}

import java.nio.FloatBuffer

/**
 * Stochastic gradient descent as in PyTorch's `torch.optim.SGD` (dampening 0), where g is the gradient, w the weights,
 * v the velocity (zero at first):
 * {{{
 * d = g + weight_decay × w
 * v = momentum × v + d          (only with momentum > 0)
 * w = w − learning_rate × (nesterov: d + momentum × v | momentum > 0: v | otherwise: d)
 * }}}
 * The learning rate follows the run's schedule. A value's factors (`Multipliers`) multiply learning_rate and weight_decay, as those of
 * a parameter group do. v is kept free of subnormal numbers (`Grid`). State: 4 bytes a value with momentum, none without.
 */
final class SgdVariant extends OptimizerVariant {
  import SgdVariant._

  def name = "sgd"
  def doc = "Stochastic gradient descent with momentum (plain or Nesterov) and weight decay, as PyTorch computes it"
  override def keys: Seq[Key[_]] = Seq(momentum, weightDecay, nesterov)

  def create(slice: ParameterSlice, settings: Settings): Optimizer = {
    if (settings(nesterov) && settings(momentum) == 0)
      throw new ConfigurationException(
        "Configuration key 'optimizer.nesterov' is true but 'optimizer.momentum' is 0; Nesterov's method needs a " +
          "momentum above 0, such as 0.9. " +
          "Set optimizer.momentum, or optimizer.nesterov=false."
      )
    new Sgd(
      slice.multipliers,
      LearningRateSchedule.learningRate(settings),
      settings(momentum).toFloat,
      settings(weightDecay).toFloat,
      settings(nesterov)
    )
  }
}

object SgdVariant {
  val momentum: Key[Double] = Key.number("optimizer.momentum", "0.0", 0, "Share of the last velocity that is kept")
  val weightDecay: Key[Double] =
    Key.number("optimizer.weight_decay", "0.0", 0, "Factor of the weights that is added to the gradient")
  val nesterov: Key[Boolean] = Key.flag("optimizer.nesterov", "false", "Nesterov's momentum instead of the plain one")
}

private[optimizer] final class Sgd(
    multipliers: Multipliers,
    learningRate: Long => Float,
    momentum: Float,
    weightDecay: Float,
    nesterov: Boolean
) extends Optimizer {
  private val length = multipliers.length
  private val velocity = new Array[Float](if (momentum > 0) length else 0)

  def state: Map[String, Array[Float]] = if (momentum > 0) Map("velocity" -> velocity) else Map.empty

  def update(weights: FloatBuffer, gradient: FloatBuffer, step: Long): Unit = {
    Optimizer.requireLengths(length, weights, gradient)
    val rate = learningRate(step)
    val staging = Staging.get()
    val (w, g, v) = (staging.first, staging.second, staging.third)
    multipliers.pieces.foreach { piece =>
      val (ownRate, ownDecay) = (rate * piece.rate, weightDecay * piece.decay)
      FloatOps.eachChunk(piece.until - piece.from) { (chunk, size) =>
        val at = piece.from + chunk
        weights.get(weights.position() + at, w, 0, size)
        gradient.get(gradient.position() + at, g, 0, size)
        if (momentum == 0) Sgd.descend(w, g, size, ownRate, ownDecay)
        else {
          // The velocity is staged too: C2 leaves loops over velocity(at + i) as they are, at three times the time.
          System.arraycopy(velocity, at, v, 0, size)
          if (nesterov) Sgd.descendNesterov(w, g, v, size, ownRate, ownDecay, momentum)
          else Sgd.descendMomentum(w, g, v, size, ownRate, ownDecay, momentum)
          System.arraycopy(v, 0, velocity, at, size)
        }
        weights.put(weights.position() + at, w, 0, size)
      }
    }
  }
}

private[optimizer] object Sgd {

  // Loops over whole arrays with nothing else in sight: C2 vectorises these.

  private def descend(w: Array[Float], g: Array[Float], size: Int, rate: Float, decay: Float): Unit = {
    var i = 0
    while (i < size) { w(i) -= rate * (g(i) + decay * w(i)); i += 1 }
  }

  private def descendMomentum(
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
      val next = ((keep * v(i) + (g(i) + decay * w(i))) + Grid.Moments) - Grid.Moments
      v(i) = next
      w(i) -= rate * next
      i += 1
    }
  }

  private def descendNesterov(
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
      val direction = g(i) + decay * w(i)
      val next = ((keep * v(i) + direction) + Grid.Moments) - Grid.Moments
      v(i) = next
      w(i) -= rate * (direction + keep * next)
      i += 1
    }
  }
}
