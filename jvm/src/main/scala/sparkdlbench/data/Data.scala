package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import org.apache.spark.SparkContext
import sparkdlbench.config.{Settings, Variant}

/**
 * What a data set is, known before any row is read by a worker.
 *
 * @param shape
 *   shape of one row as a model gets it, e.g. Seq(784), or channels, height, width: Seq(1, 28, 28)
 * @param classes
 *   how many; 1 where the labels are numbers (regression)
 * @param trainRows
 *   those that the run trains on (`data.share`)
 * @param heldBytes
 *   heap that the decoded rows take in an executor
 * @param skipped
 *   what `on_error` = skip left out
 * @param rowsIdentity
 *   the same for the same training rows in the same order, of all that there are: `trainRows` tells which of them are
 *   taken; empty where files or settings tell which rows they are and in which order, so that they are found again
 * @param input
 *   how a stored row becomes one of `shape`, but for what the rows themselves tell (`DataSets.change`)
 */
final case class DataFacts(
    trainRows: Int,
    testRows: Int,
    shape: Seq[Int],
    classes: Int,
    description: String,
    heldBytes: Long,
    skipped: Skipped = Skipped.none,
    rowsIdentity: String = "",
    input: RowInput = RowInput(Nil)
) extends Serializable

/**
 * @param augmentation
 *   what is done to the training rows as they are read; the test rows are as they shall be
 * @param change
 *   the normalisation, which both sets have been through already
 */
final case class DataSets(
    train: RowStore,
    test: RowStore,
    augmentation: Option[Augmentation] = None,
    change: Option[Normalization.Change] = None
)

/**
 * @param settings
 *   to go on with
 * @param undecoded
 *   None where `prepare` has nothing left to do, so that `inspect` tells everything; else shape, classes and description, and rows and bytes
 *   as small as they may be, since nobody has counted them
 */
final case class DataPreview(settings: Settings, undecoded: Option[DataFacts])

trait DataSource extends Variant {

  /** Whether its labels may be numbers, as a regression has them; others give classes alone. */
  def givesNumbers: Boolean = false

  /**
   * The same settings with paths made complete (absolute, with their scheme): executors have other working folders than
   * the driver, where this runs, before `prepare`.
   */
  def qualified(settings: Settings, hadoop: Configuration): Settings = settings

  /**
   * What has to be done once before the rows can be opened in every executor, by Spark jobs; the settings returned say
   * where they are. Runs on the driver, before `inspect`. What needs no job is checked before the first one.
   */
  def prepare(settings: Settings, spark: SparkContext): Settings = settings

  /**
   * What can be known of the set without a Spark job, after everything was checked that needs none; for whoever looks at a run before it is
   * made. Driver, after `qualified`.
   */
  def preview(settings: Settings, spark: SparkContext): DataPreview = DataPreview(settings, None)

  /**
   * Checks everything that can be checked without a Spark job (files there, magic numbers, lengths, counts, labels) and
   * throws a ConfigurationException that names file, value and what is valid. Runs on the driver.
   */
  def inspect(settings: Settings, hadoop: Configuration): DataFacts

  /** Decodes the rows. Runs in each executor once a run. */
  def open(settings: Settings, hadoop: Configuration): DataSets
}
