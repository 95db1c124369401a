package sparkdlbench.model

import com.fasterxml.jackson.databind.node.ObjectNode
import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import sparkdlbench.ConfigurationException

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

/** A model's specification as JSON, for Python and for run.json; fields in docs/models.md. */
private[model] object ModelJson {
  private val mapper = new ObjectMapper

  def write(spec: ModelSpec): String = {
    val root = mapper.createObjectNode()
    root.put("name", spec.name)
    ints(root, "input_shape", spec.inputShape)
    root.put("classes", spec.classes)
    val layers = root.putArray("layers")
    spec.layers.foreach { layer =>
      val node = layers.addObject()
      node.put("name", layer.name).put("kind", layer.kind)
      val options = node.putObject("options")
      layer.options.toSeq.sortBy(_._1).foreach { case (name, value) => number(options, name, value) }
      node.put("initializer", layer.initializer)
    }
    val parameters = root.putArray("parameters")
    spec.layout.foreach { parameter =>
      val node = parameters.addObject()
      node.put("name", parameter.name)
      ints(node, "shape", parameter.shape)
      node.put("offset", parameter.offset).put("initializer", parameter.initializer)
    }
    mapper.writeValueAsString(root)
  }

  def read(json: String): ModelSpec = {
    val root =
      try mapper.readTree(json)
      catch {
        case NonFatal(error) => throw invalid(s"it is not JSON (${error.getMessage.takeWhile(_ != '\n')})", error)
      }
    if (root == null || !root.isObject) throw invalid("it is not a JSON object")
    val layers = field(root, "layers").elements().asScala.toSeq.map { node =>
      val options =
        field(node, "options").properties().asScala.toSeq.map(option => option.getKey -> option.getValue.asDouble)
      LayerSpec(text(node, "name"), text(node, "kind"), options.toMap, text(node, "initializer"))
    }
    val spec = ModelSpec(text(root, "name"), intList(root, "input_shape"), field(root, "classes").asInt, layers)
    checkParameters(root, spec)
    spec
  }

  /** The layout follows from the layers; where the text states it too, both must agree. */
  private def checkParameters(root: JsonNode, spec: ModelSpec): Unit = Option(root.get("parameters")).foreach { nodes =>
    val stated = nodes.elements().asScala.toSeq.map { node =>
      ParameterSpec(text(node, "name"), intList(node, "shape"), field(node, "offset").asInt, text(node, "initializer"))
    }
    if (stated != spec.layout)
      throw invalid(s"its parameters are ${stated.mkString(", ")}, but its layers make ${spec.layout.mkString(", ")}")
  }

  private def ints(node: ObjectNode, name: String, values: Seq[Int]): Unit = {
    val array = node.putArray(name)
    values.foreach(value => array.add(value))
  }

  private def number(node: ObjectNode, name: String, value: Double): Unit =
    if (value == math.rint(value) && math.abs(value) < 1e15) node.put(name, value.toLong) else node.put(name, value)

  private def field(node: JsonNode, name: String): JsonNode =
    Option(node.get(name)).getOrElse(throw invalid(s"it lacks the field '$name'"))

  private def text(node: JsonNode, name: String): String = field(node, name).asText

  private def intList(node: JsonNode, name: String): Seq[Int] = field(node, name).elements().asScala.map(_.asInt).toList

  private def invalid(reason: String, cause: Throwable = null) = new ConfigurationException(
    s"The text is not a model specification: $reason. Write one with ModelSpec.toJson; docs/models.md lists the fields.",
    cause
  )
}
