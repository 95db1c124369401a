package sparkdlbench.data

import sparkdlbench.config.{Axis, Key, RunKeys, Settings, Variant, Variants}

/** Where rows come from. */
final class DataAxis extends Axis {
  def place = 7
  def name = "data"
  override def title = "data source"
  def key: Key[String] = RunKeys.data
  def variants: Seq[Variant] = Variants.all[DataSource]

  override def check(settings: Settings): Unit =
    UnreadKeys.check(Variants.find[DataSource](title, settings(key)), settings)
}
