package sparkdlbench.loss

import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Key, RunKeys, Settings}

import scala.util.Try

/** The label of rows that count neither in the loss nor in the metrics, as `ignore_index` of PyTorch's CrossEntropyLoss. */
object IgnoredLabel {
  val key: Key[Option[Int]] = Key(
    "loss.ignore_label",
    "",
    "a whole number; empty: all rows count",
    "Of cross-entropy and binary-cross-entropy: rows with this label, one of the classes or another number such as -1 or 255, count neither in the loss nor in the metrics",
    {
      case "" => Some(None)
      case text => Try(text.trim.toInt).toOption.map(Some(_))
    }
  )

  /** None where all rows count. */
  def of(settings: Settings): Option[Int] = if (Loss.of(settings).isRegression) None else settings(key)

  /** Where it is none of the classes: labels may then be this number, too. */
  def beside(settings: Settings, classes: Int): Option[Int] =
    of(settings).filter(label => label < 0 || label >= classes)

  /** Whether a label, as `Batch` has it, is the one. */
  def among(settings: Settings): Long => Boolean = (of(settings), Loss.of(settings).hasNumbers) match {
    case (None, _) => _ => false
    case (Some(ignored), false) => label => label.toInt == ignored
    case (Some(ignored), true) => label => Target.value(label.toInt) == ignored.toFloat
  }

  /** Throws a ConfigurationException where the settings ignore a label of a loss that has none. */
  def check(settings: Settings): Unit = settings.entries.get(key.name).filter(_.nonEmpty).foreach { text =>
    if (Loss.of(settings).isRegression)
      throw new ConfigurationException(
        s"Configuration key '${key.name}' is '$text', and loss.name=${settings(RunKeys.loss)} is for regression, whose labels are numbers and no classes. Leave " +
          "it out, or set loss.name=cross-entropy."
      )
  }
}
