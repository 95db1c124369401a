package sparkdlbench.loss

import sparkdlbench.config.Settings

/** error²; slope 2 × error, as PyTorch's MSELoss. Far-off labels count most; not for labels with gross outliers. */
final class MeanSquared extends RegressionLoss {
  def name = "mean-squared"
  def doc = "Regression: the square of the error, so that predictions approach the mean"

  def of(settings: Settings): ErrorLoss = new ErrorLoss {
    def value(error: Double): Double = error * error
    def slope(error: Double): Double = 2 * error
  }
}
