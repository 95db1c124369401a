package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import org.apache.spark.SparkContext
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{RunKeys, Settings, Variants}

/** How rows come to a training loop of the user's own. */
object RowFeeds {

  /** Decodes what is not decoded yet; the settings to open the rows with. Driver. */
  def prepare(settings: Settings, spark: SparkContext): Settings =
    Variants.find[DataSource]("data source", settings(RunKeys.data)) match {
      case source: RecordSource =>
        val sharded = settings.updated(Placement.placement, "sharded")
        source.prepare(source.qualified(sharded, spark.hadoopConfiguration), spark)
      case other =>
        throw new ConfigurationException(
          s"data.source=${other.name} is read by its own runs alone; rows for a loop of your own come from a DataFrame."
        )
    }

  /** @param settings as `prepare` gave them */
  def open(settings: Settings, hadoop: Configuration): RowFeed =
    RowsFolder.require(settings(RecordSource.decodedDir), hadoop).feed(settings)
}
