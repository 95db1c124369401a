package sparkdlbench.common

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper, SerializationFeature}

import scala.collection.immutable.ListMap
import scala.jdk.CollectionConverters._

/** Scala maps, sequences, options, numbers and text as JSON, through the Jackson that Spark ships. */
object Json {
  private val mapper = new ObjectMapper()
  private val pretty = new ObjectMapper().enable(SerializationFeature.INDENT_OUTPUT)

  /** An object whose fields keep their order. */
  def fields(pairs: (String, Any)*): ListMap[String, Any] = ListMap(pairs: _*)

  def line(value: Any): String = mapper.writeValueAsString(toJava(value))
  def text(value: Any): String = pretty.writeValueAsString(toJava(value))

  def read(text: String): JsonNode = mapper.readTree(text)

  /** NaN and infinities become null: JSON has neither. */
  private def toJava(value: Any): Any = value match {
    case map: scala.collection.Map[_, _] =>
      val ordered = new java.util.LinkedHashMap[String, Any]()
      map.foreach { case (key, item) => ordered.put(key.toString, toJava(item)) }
      ordered
    case array: Array[_] => array.toSeq.map(toJava).asJava
    case items: Iterable[_] => items.map(toJava).toSeq.asJava
    case option: Option[_] => option.map(toJava).orNull
    case number: Double if number.isNaN || number.isInfinite => null
    case number: Float if number.isNaN || number.isInfinite => null
    case other => other
  }
}
