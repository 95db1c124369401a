package sparkdlbench.loss

import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Key, RunKeys, Settings}

import scala.util.Try

/** How much a row of each class counts in `cross-entropy`. */
sealed trait ClassWeights

object ClassWeights {

  /** All classes count alike. */
  case object Equal extends ClassWeights

  /** By the training rows, as scikit-learn's `class_weight="balanced"`: rows / (classes that occur × rows of the class). */
  case object Balanced extends ClassWeights
  final case class Given(values: Seq[Float]) extends ClassWeights

  val key: Key[ClassWeights] = Key(
    "loss.class_weights",
    "",
    "balanced, or a number of at least 0 for each class, separated by commas, not all of them 0; empty: all count alike",
    "Of cross-entropy: what a row's loss is multiplied by, for each class; balanced: rare classes count as much as frequent ones",
    {
      case "" => Some(Equal)
      case "balanced" => Some(Balanced)
      case text =>
        Try(text.split(",", -1).map(_.trim.toFloat).toList).toOption
          .filter(_.forall(weight => weight >= 0 && !weight.isInfinite))
          .filter(_.exists(_ > 0))
          .map(Given(_))
    }
  )

  /** Throws a ConfigurationException where the settings weigh other classes than there are, or those of a regression. */
  def check(settings: Settings, classes: Int): Unit = {
    def refuse(why: String) = throw new ConfigurationException(
      s"Configuration key '${key.name}' is '${settings.entries.getOrElse(key.name, "")}', and $why"
    )
    settings(key) match {
      case Equal => ()
      case _ if Loss.of(settings).hasNumbers =>
        refuse(
          s"loss.name=${settings(RunKeys.loss)} has no classes. Leave it out, or set loss.name=cross-entropy."
        )
      case Given(values) if values.size != classes =>
        refuse(
          s"that is ${values.size} number${if (values.size == 1) "" else "s"} for $classes classes. Give one for each class, in their order, or balanced."
        )
      case _ => ()
    }
  }

  /** One for each class; None where all count alike. `balanced` has to be settled before. */
  def of(settings: Settings): Option[Array[Float]] = settings(key) match {
    case Equal => None
    case Given(values) => Some(values.toArray)
    case Balanced =>
      throw new IllegalStateException(s"${key.name} = balanced has not been settled by the training rows")
  }

  /**
   * The settings with numbers in place of `balanced`.
   *
   * @param counts
   *   training rows of each class; asked for with `balanced` alone
   */
  def settled(settings: Settings, counts: => Array[Long]): Settings =
    if (settings(key) != Balanced) settings else settings.updated(key, balanced(counts).mkString(","))

  /** A class without rows has weight 1. */
  private[loss] def balanced(counts: Array[Long]): Array[Float] = {
    val occur = counts.count(_ > 0)
    counts.map(rows => if (rows == 0) 1f else (counts.sum.toDouble / (occur.toDouble * rows)).toFloat)
  }
}
