package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import sparkdlbench.config.{Settings, Variant}

import java.nio.{FloatBuffer, LongBuffer}

/**
 * What a data set is, known before any row is read by a worker.
 *
 * @param shape
 *   shape of one row, e.g. Seq(784)
 */
final case class DataFacts(trainRows: Int, testRows: Int, shape: Seq[Int], classes: Int, description: String)
    extends Serializable

/** Rows by id, held compactly in an executor and shared by its ranks. Thread-safe, immutable. */
trait RowStore {
  def rows: Int

  /** fp32 values a row. */
  def width: Int

  /** Writes row `id` as fp32 at `features` [at × width, (at + 1) × width) and its class at `labels`(at). */
  def read(id: Int, at: Int, features: FloatBuffer, labels: LongBuffer): Unit

  /**
   * `read` of the rows whose ids are `ids`[from, until), to places 0, 1, …; stores override it where that is faster.
   */
  def readAll(ids: Array[Int], from: Int, until: Int, features: FloatBuffer, labels: LongBuffer): Unit = {
    var at = from
    while (at < until) { read(ids(at), at - from, features, labels); at += 1 }
  }
}

final case class DataSets(train: RowStore, test: RowStore)

trait DataSource extends Variant {

  /**
   * The same settings with paths made complete (absolute, with their scheme): executors have other working folders than
   * the driver, where this runs, before `inspect`.
   */
  def qualified(settings: Settings, hadoop: Configuration): Settings = settings

  /**
   * Checks everything that can be checked without a Spark job (files there, magic numbers, lengths, counts, labels) and
   * throws a ConfigurationException that names file, value and what is valid. Runs on the driver.
   */
  def inspect(settings: Settings, hadoop: Configuration): DataFacts

  /** Heap that the decoded rows take in an executor, bytes. */
  def heldBytes(facts: DataFacts): Long = (facts.trainRows.toLong + facts.testRows) * (facts.shape.product + 1)

  /** Decodes the rows. Runs in each executor once a run. */
  def open(settings: Settings, hadoop: Configuration): DataSets
}
