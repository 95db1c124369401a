package sparkdlbench.config

import com.fasterxml.jackson.databind.ObjectMapper

import java.util.regex.Pattern
import scala.collection.immutable.ListMap
import scala.jdk.CollectionConverters._

/**
 * What stays out of everything that a run writes or says. Two lists of patterns, which Python's `redaction` reads from the same file: names of keys and
 * properties whose whole value is hidden, and what in any text is hidden (users in URIs, `password=…`). In a text the pattern's first group stays.
 */
object Redaction {

  /** As Spark's own pages write it. */
  val Hidden = "*********(redacted)"
  private val Mark = "(redacted)"

  private lazy val (names, values) = {
    val stream = getClass.getResourceAsStream("/sparkdlbench/redaction.json")
    val lists =
      try new ObjectMapper().readTree(stream)
      finally stream.close()
    def all(list: String, flags: Int) =
      lists.path(list).elements.asScala.map(each => Pattern.compile(each.asText, flags)).toList
    (all("names", Pattern.CASE_INSENSITIVE), all("values", Pattern.CASE_INSENSITIVE))
  }

  /** Whether the value of a key or property is hidden whole. */
  def isSecret(name: String): Boolean = names.exists(_.matcher(name).find())

  /** A text without the secrets in it. */
  def text(value: String): String =
    if (value == null) null else values.foldLeft(value)((sofar, each) => each.matcher(sofar).replaceAll("$1" + Mark))

  /** The value of a key or property as it may be shown. */
  def value(name: String, value: String): String = if (isSecret(name) && value.nonEmpty) Hidden else text(value)

  def map(fields: ListMap[String, Any]): ListMap[String, Any] = tree(fields).asInstanceOf[ListMap[String, Any]]

  /** The same of everything in maps, lists and options of what is to become JSON. */
  def tree(any: Any): Any = any match {
    case words: String => text(words)
    case map: scala.collection.Map[_, _] =>
      ListMap(map.toSeq.map {
        case (name, words: String) => name.toString -> value(name.toString, words)
        case (name, other) => name.toString -> tree(other)
      }: _*)
    case option: Option[_] => option.map(tree)
    case items: scala.collection.Seq[_] if items.exists(holdsText) => items.map(tree)
    case other => other
  }

  /** Lists of numbers are long. */
  private def holdsText(item: Any): Boolean = item match {
    case _: Number => false
    case _ => true
  }
}
