package sparkdlbench.data

import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Axis, Key, RunKeys, Settings, Variant, Variants}
import sparkdlbench.loss.Loss

/** Where rows come from. */
final class DataAxis extends Axis {
  def place = 7
  def name = "data"
  override def title = "data source"
  def key: Key[String] = RunKeys.data
  def variants: Seq[Variant] = Variants.all[DataSource]

  override def check(settings: Settings): Unit = {
    val source = Variants.find[DataSource](title, settings(key))
    if (Loss.of(settings).hasNumbers && !source.givesNumbers)
      throw new ConfigurationException(
        s"loss.name=${settings(RunKeys.loss)} is for labels that are numbers, and the data source '${source.name}' gives classes alone. Sources whose labels are numbers: " +
          s"${Variants.all[DataSource].filter(_.givesNumbers).map(_.name).mkString(", ")}. Set data.source to one of them, or loss.name=cross-entropy."
      )
    UnreadKeys.check(source, settings)
  }
}
