package sparkdlbench.data

import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Key, Settings}

import scala.collection.immutable.ListMap

/**
 * Bad records that were left out (`data.on_error` = skip).
 *
 * @param listed
 *   file, record, offset and reason of the first `MostListed`
 */
final case class Skipped(count: Long, listed: Seq[String]) extends Serializable {
  def +(other: Skipped): Skipped = Skipped(count + other.count, (listed ++ other.listed).take(Skipped.MostListed))

  def toMap: ListMap[String, Any] = ListMap("count" -> count, "listed" -> listed)
}

object Skipped {
  val most: Key[Int] =
    Key.int(
      "data.max_skipped",
      "100",
      0,
      "With data.on_error = skip: more bad records than this end the run all the same"
    )

  val MostListed = 100
  val none: Skipped = Skipped(0, Nil)

  def of(all: Seq[String]): Skipped = Skipped(all.size.toLong, all.take(MostListed))

  /** All of them together; a ConfigurationException where they are more than `data.max_skipped`. */
  def limited(all: Seq[Skipped], settings: Settings): Skipped = {
    val sum = all.foldLeft(none)(_ + _)
    val limit = settings(most)
    if (sum.count > limit) throw new ConfigurationException(overLimit(sum, limit))
    sum
  }

  def overLimit(found: Skipped, limit: Int): String =
    s"The data set has ${found.count} bad records or more, over the limit `data.max_skipped` = $limit. The first: " +
      s"${found.listed.take(3).mkString(" ")} Fix the files, or raise the limit."
}
