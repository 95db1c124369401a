package sparkdlbench.loss

import sparkdlbench.config.Settings

/**
 * |error|; slope its sign, 0 where the error is 0, as PyTorch's L1Loss. All errors pull equally, also the smallest: let the learning rate
 * fall towards the end.
 */
final class Absolute extends RegressionLoss {
  def name = "absolute"
  def doc = "Regression: the error without its sign, so that predictions approach the median and outliers count little"

  def of(settings: Settings): ErrorLoss = new ErrorLoss {
    def value(error: Double): Double = math.abs(error)
    def slope(error: Double): Double = math.signum(error)
  }
}
