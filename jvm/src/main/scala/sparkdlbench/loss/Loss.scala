package sparkdlbench.loss

import sparkdlbench.config.{Axis, Key, RunKeys, Settings, Variant, Variants}

/** What training makes small: of each row one number, which says how far the model's output is from the row's label. */
trait Loss extends Variant {

  /** Whether labels are numbers to come close to, not classes to tell apart: the model then has one output. */
  def isRegression: Boolean

  /** Whether labels are answers, no or yes (0 or 1), and each output the score of one. */
  def isBinary: Boolean = false

  /** Whether labels are held as numbers (`Target`), not as classes. */
  final def hasNumbers: Boolean = isRegression || isBinary

  /** Itself over batches; None where each engine has it in kernels of its own. @param outputs of a row */
  def inJvm(settings: Settings, outputs: Int): Option[BatchLoss] = None
}

object Loss {

  /** The loss that the settings name. */
  def of(settings: Settings): Loss = Variants.find[Loss]("loss", settings(RunKeys.loss))
}

/** A loss of the error alone, which is prediction − label: one output, labels are finite numbers. */
trait RegressionLoss extends Loss {
  final def isRegression: Boolean = true
  final override def inJvm(settings: Settings, outputs: Int): Option[BatchLoss] = Some(new BatchErrors(of(settings)))
  def of(settings: Settings): ErrorLoss
}

/** In fp64; any thread. */
trait ErrorLoss {

  /** The loss of a row with this error. */
  def value(error: Double): Double

  /** Its derivative with respect to the prediction. */
  def slope(error: Double): Double
}

final class LossAxis extends Axis {
  def place = 10
  def name = "loss"
  def key: Key[String] = RunKeys.loss
  def variants: Seq[Variant] = Variants.all[Loss]
}
