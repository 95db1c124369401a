package sparkdlbench.train

import sparkdlbench.common.{ConfigurationException, Json}
import sparkdlbench.config.{Aliases, Axis, Key, RunKeys, Settings, Variant}
import sparkdlbench.model.ModelFamily
import sparkdlbench.transport.TransportVariant

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Paths}
import scala.collection.immutable.ListMap

/** What there is to choose from, axis by axis. */
object Catalogue {
  private val byAxis: ListMap[String, () => Seq[Variant]] =
    ListMap(Axis.all.map(axis => axis.name -> (() => axis.variants)): _*)

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

  /**
   * All of it as JSON, for programs that check a run before there is a JVM: the build keeps it in the thin jar as
   * `sparkdlbench/catalogue.json`, and Python's `catalogue` reads it there.
   */
  def whole: String = Json.line(
    ListMap[String, Any](
      "schema" -> 1,
      "keys" -> RunKeys.all.map(key => describe(key) ++ ListMap("kind" -> key.kind.name) ++ key.kind.bounds),
      "variants" -> ListMap(axes.map(axis => axis -> variants(axis)): _*),
      "named_by" -> Aliases.named.map { case (key, names) => key -> names() },
      "elsewhere" -> Map(RunKeys.transport.name -> TransportVariant.elsewhere),
      "aliases" -> Aliases.keys,
      "values" -> Aliases.values
    )
  )

  /** Writes it to the file that is named: what the build calls. */
  def main(arguments: Array[String]): Unit = {
    Files.write(Paths.get(arguments(0)), whole.getBytes(UTF_8))
    ()
  }
}
