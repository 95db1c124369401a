package sparkdlbench.loss

import sparkdlbench.config.{Key, Kind, Settings}

import scala.util.Try

/**
 * error² / 2 up to |error| = delta, and delta × (|error| − delta / 2) beyond, as PyTorch's HuberLoss: squared near the label, absolute far
 * from it (Huber, Robust Estimation of a Location Parameter, 1964).
 */
final class Huber extends RegressionLoss {
  def name = "huber"
  def doc = "Regression: squared for errors up to loss.delta, absolute beyond, so that outliers count little"
  override def keys: Seq[Key[_]] = Seq(Huber.delta)

  def of(settings: Settings): ErrorLoss = {
    val delta = settings(Huber.delta)
    new ErrorLoss {
      def value(error: Double): Double = {
        val size = math.abs(error)
        if (size <= delta) error * error / 2 else delta * (size - delta / 2)
      }
      def slope(error: Double): Double = math.max(-delta, math.min(delta, error))
    }
  }
}

object Huber {
  val delta: Key[Double] = Key(
    "loss.delta",
    "1.0",
    "a number above 0",
    "Largest error that counts squared, in the label's unit",
    text => Try(text.toDouble).toOption.filter(number => number > 0 && !number.isInfinite),
    Kind.Number(0, below = None)
  )
}
