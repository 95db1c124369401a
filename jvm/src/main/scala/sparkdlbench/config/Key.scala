package sparkdlbench.config

import java.util.Locale
import scala.util.Try

/**
 * One configuration key: `name` as it stands in a run's TOML file; `spark.sparkdl.` + the same name in camel case in a
 * Spark configuration.
 *
 * @param name
 *   dotted, snake case: `engine.blas`
 * @param default
 *   what holds when nobody sets the key, as text
 * @param valid
 *   the valid values in words, for error messages
 * @param doc
 *   meaning and unit, one sentence
 * @param parse
 *   text to value; None where the text is not valid
 * @param kind
 *   what every valid text has in common, for programs that check it without a JVM; `parse` may refuse more
 */
final case class Key[T](
    name: String,
    default: String,
    valid: String,
    doc: String,
    parse: String => Option[T],
    kind: Kind = Kind.Text
) {
  def sparkName: String = Key.SparkPrefix + Key.camelCase(name)
}

object Key {
  val SparkPrefix = "spark.sparkdl."

  def text(name: String, default: String, doc: String): Key[String] =
    Key(name, default, "any text", doc, Some(_))

  def choice(name: String, default: String, values: Seq[String], doc: String): Key[String] =
    Key(name, default, values.mkString(", "), doc, value => Some(value).filter(values.contains), Kind.Choice(values))

  def int(name: String, default: String, min: Int, doc: String): Key[Int] =
    Key(
      name,
      default,
      s"a whole number, at least $min",
      doc,
      value => Try(value.toInt).toOption.filter(_ >= min),
      Kind.Whole(min.toLong, Int.MaxValue.toLong)
    )

  /** A number of workers, or a range of them (`2..8`), whose value is its lower bound: `RunKeys.workerRange` has both. */
  def workers(name: String, default: String, doc: String): Key[Int] =
    Key(
      name,
      default,
      "a whole number, at least 1, or a range of them such as 2..8",
      doc,
      value => Try(value.toInt).toOption.filter(_ >= 1).orElse(WorkerRange.read(value).map(_.least)),
      Kind.WholeOrRange(1, Int.MaxValue.toLong)
    )

  def long(name: String, default: String, min: Long, doc: String): Key[Long] =
    Key(
      name,
      default,
      s"a whole number, at least $min",
      doc,
      value => Try(value.toLong).toOption.filter(_ >= min),
      Kind.Whole(min, Long.MaxValue)
    )

  def number(name: String, default: String, min: Double, doc: String): Key[Double] =
    Key(
      name,
      default,
      s"a number, at least $min",
      doc,
      value => Try(value.toDouble).toOption.filter(n => n >= min && !n.isInfinite),
      Kind.Number(min, below = None)
    )

  /** A number from 0 to below 1. */
  def share(name: String, default: String, doc: String): Key[Double] =
    Key(
      name,
      default,
      "a number from 0 to below 1",
      doc,
      value => Try(value.toDouble).toOption.filter(n => n >= 0 && n < 1),
      Kind.Number(0, below = Some(1.0))
    )

  def flag(name: String, default: String, doc: String): Key[Boolean] =
    Key(name, default, "true, false", doc, value => Try(value.toBoolean).toOption, Kind.Flag)

  /** A list of whole numbers, written `1024` or `100,50`; empty text is the empty list. */
  def ints(name: String, default: String, doc: String): Key[Seq[Int]] =
    Key(
      name,
      default,
      "whole numbers above 0, separated by commas",
      doc,
      value => Try(value.split(',').map(_.trim).filter(_.nonEmpty).map(_.toInt).toSeq).toOption.filter(_.forall(_ > 0)),
      Kind.Wholes
    )

  /** `engine.blasThreads` and `engine.blas_threads` are the same key. */
  def snakeCase(name: String): String = name.replaceAll("([a-z0-9])([A-Z])", "$1_$2").toLowerCase(Locale.ROOT)

  def camelCase(name: String): String =
    "_([a-z0-9])".r.replaceAllIn(name, found => found.group(1).toUpperCase)
}
