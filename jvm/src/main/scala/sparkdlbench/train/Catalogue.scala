package sparkdlbench.train

import sparkdlbench.ConfigurationException
import sparkdlbench.algorithm.Algorithm
import sparkdlbench.codec.Codec
import sparkdlbench.config.{Key, Settings, Variant, Variants}
import sparkdlbench.data.DataSource
import sparkdlbench.engine.EngineVariant
import sparkdlbench.model.ModelFamily
import sparkdlbench.optimizer.{OptimizerVariant, ScheduleVariant}
import sparkdlbench.topology.Topology
import sparkdlbench.transport.TransportVariant

import scala.collection.immutable.ListMap

/** What there is to choose from, axis by axis. */
object Catalogue {
  private val byAxis: ListMap[String, () => Seq[Variant]] = ListMap(
    "algorithm" -> (() => Variants.all[Algorithm]),
    "topology" -> (() => Variants.all[Topology]),
    "transport" -> (() => Variants.all[TransportVariant]),
    "codec" -> (() => Variants.all[Codec]),
    "engine" -> (() => Variants.all[EngineVariant]),
    "model" -> (() => Variants.all[ModelFamily]),
    "data" -> (() => Variants.all[DataSource]),
    "optimizer" -> (() => Variants.all[OptimizerVariant]),
    "schedule" -> (() => Variants.all[ScheduleVariant])
  )

  def axes: Seq[String] = byAxis.keys.toSeq

  def variants(axis: String): Seq[ListMap[String, Any]] = byAxis
    .getOrElse(
      axis,
      throw new ConfigurationException(
        s"There is no axis '$axis'.${Settings.suggestion(axis, axes)} Valid: ${axes.mkString(", ")}."
      )
    )()
    .map(variant =>
      ListMap[String, Any]("name" -> variant.name, "doc" -> variant.doc, "keys" -> variant.keys.map(describe)) ++
        facts(variant)
    )

  /** What a model is for its usual rows; nothing for other variants. */
  private def facts(variant: Variant): ListMap[String, Any] = variant match {
    case family: ModelFamily =>
      family.usual.fold(ListMap.empty[String, Any]) { case (shape, classes) =>
        val spec = family.build(shape, classes, Settings.resolve(Map.empty, family.keys))
        ListMap(
          "input_shape" -> shape,
          "classes" -> classes,
          "parameters" -> spec.parameterCount,
          "flops" -> spec.flops,
          "gradient_bytes" -> spec.parameterCount * 4L
        )
      }
    case _ => ListMap.empty
  }

  def describe(key: Key[_]): ListMap[String, Any] = ListMap(
    "name" -> key.name,
    "spark_name" -> key.sparkName,
    "default" -> key.default,
    "valid" -> key.valid,
    "doc" -> key.doc
  )
}
