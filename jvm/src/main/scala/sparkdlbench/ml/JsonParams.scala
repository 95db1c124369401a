package sparkdlbench.ml

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.ml.param.Param
import org.apache.spark.ml.util.Identifiable
import sparkdlbench.common.Json

import scala.jdk.CollectionConverters._

/**
 * Keys of a run and their values as texts. In a written estimator they stand as Python has them, numbers and lists among them, so that either
 * language reads the other's.
 *
 * @param only
 *   the key whose value may stand alone, as the model's `name`; empty: none
 */
private[ml] final class KeysParam(parent: Identifiable, name: String, doc: String, only: String = "")
    extends Param[Map[String, String]](parent.uid, name, doc, (_: Map[String, String]) => true) {

  override def jsonEncode(value: Map[String, String]): String =
    if (only.nonEmpty && value.keySet == Set(only)) Json.line(value(only)) else Json.line(value)

  override def jsonDecode(json: String): Map[String, String] = Json.read(json) match {
    case node if node.isObject => JsonText.flat(node, "")
    case node => JsonText.of(node).map(only -> _).toMap
  }
}

/** A text, which a written estimator may have as a number, a list of them, or null. */
private[ml] final class TextParam(
    parent: Identifiable,
    name: String,
    doc: String,
    encode: String => Any = identity[String]
) extends Param[String](parent.uid, name, doc, (_: String) => true) {
  override def jsonEncode(value: String): String = Json.line(encode(value))
  override def jsonDecode(json: String): String = JsonText.of(Json.read(json)).getOrElse("")
}

/** Values of JSON as the texts of a run's keys. */
private[ml] object JsonText {

  /** None of null. */
  def of(node: JsonNode): Option[String] =
    if (node.isNull) None
    else if (node.isArray) Some(node.elements.asScala.flatMap(of(_)).mkString(","))
    else Some(node.asText)

  /** The fields of objects within objects, with a dot between. */
  def flat(node: JsonNode, before: String): Map[String, String] = node.properties.asScala.flatMap { field =>
    val name = before + field.getKey.replace("__", ".")
    if (field.getValue.isObject) flat(field.getValue, s"$name.") else of(field.getValue).map(name -> _).toMap
  }.toMap
}
