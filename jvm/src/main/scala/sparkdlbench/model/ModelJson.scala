package sparkdlbench.model

import com.fasterxml.jackson.databind.node.ObjectNode
import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.Settings

import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

/** A model's specification as JSON, for Python and for run.json; fields in docs/reference/models.md. */
private[model] object ModelJson {
  private val mapper = new ObjectMapper
  private val Zero = "zero"
  private val RateField = "lr_mult"
  private val DecayField = "decay_mult"
  private val layerFields = Seq("name", "kind", "options", "initializer", "bias_initializer", "inputs")

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
      if (layer.biasInitializer != Zero) node.put("bias_initializer", layer.biasInitializer)
      if (layer.inputs.nonEmpty) {
        val inputs = node.putArray("inputs")
        layer.inputs.foreach(name => inputs.add(name))
      }
    }
    tensors(root, "parameters", spec.layout)
    if (spec.statistics.nonEmpty) tensors(root, "statistics", spec.statistics)
    mapper.writeValueAsString(root)
  }

  private def tensors(root: ObjectNode, name: String, layout: Seq[ParameterSpec]): Unit = {
    val array = root.putArray(name)
    layout.foreach { parameter =>
      val node = array.addObject()
      node.put("name", parameter.name)
      ints(node, "shape", parameter.shape)
      node.put("offset", parameter.offset).put("initializer", parameter.initializer)
      if (parameter.rate != 1) number(node, RateField, parameter.rate)
      if (parameter.decay != 1) number(node, DecayField, parameter.decay)
    }
  }

  def read(json: String): ModelSpec = {
    val root =
      try mapper.readTree(json)
      catch {
        case NonFatal(error) => throw invalid(s"it is not JSON (${error.getMessage.takeWhile(_ != '\n')})", error)
      }
    if (root == null || !root.isObject) throw invalid("it is not a JSON object")
    read(root)
  }

  /** Reads a specification in any notation that Jackson reads. */
  def read(root: JsonNode): ModelSpec = {
    val layers = field(root, "layers").elements().asScala.toList.map(layer)
    val spec = ModelSpec(text(root, "name"), intList(root, "input_shape"), field(root, "classes").asInt, layers)
    checkTensors(root, "parameters", spec.layout)
    checkTensors(root, "statistics", spec.statistics)
    spec
  }

  private def layer(node: JsonNode): LayerSpec = {
    val name = text(node, "name")
    val unknown = node.fieldNames.asScala.toList.filterNot(layerFields.contains)
    if (unknown.nonEmpty)
      throw invalid(
        s"layer '$name' has the field '${unknown.head}'.${Settings.suggestion(unknown.head, layerFields)} Fields of a layer: ${layerFields
            .mkString(", ")}; what belongs to its kind stands in 'options'"
      )
    val options = Option(node.get("options")).toList.flatMap(_.properties().asScala).map { option =>
      val value = option.getValue
      if (!value.isNumber && !value.isBoolean)
        throw invalid(s"layer '$name' has the option ${option.getKey}=$value, not a number")
      option.getKey -> (if (value.isBoolean) { if (value.asBoolean) 1.0 else 0.0 }
                        else value.asDouble)
    }
    LayerSpec(
      name,
      text(node, "kind"),
      options.toMap,
      Option(node.get("initializer")).fold("")(_.asText),
      Option(node.get("inputs")).toList.flatMap(_.elements().asScala.map(_.asText).toList),
      Option(node.get("bias_initializer")).fold(Zero)(_.asText)
    )
  }

  /** The layout follows from the layers; where the text states it too, both must agree. */
  private def checkTensors(root: JsonNode, name: String, layout: Seq[ParameterSpec]): Unit =
    Option(root.get(name)).foreach { nodes =>
      val stated = nodes.elements().asScala.toList.map { node =>
        ParameterSpec(
          text(node, "name"),
          intList(node, "shape"),
          field(node, "offset").asInt,
          text(node, "initializer"),
          Option(node.get(RateField)).fold(1.0)(_.asDouble),
          Option(node.get(DecayField)).fold(1.0)(_.asDouble)
        )
      }
      if (stated != layout)
        throw invalid(s"its $name are ${stated.mkString(", ")}, but its layers make ${layout.mkString(", ")}")
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
    s"The text is not a model specification: $reason. Write one with ModelSpec.toJson; docs/reference/models.md lists the fields.",
    cause
  )
}
