package sparkdlbench.config

import com.fasterxml.jackson.core.JsonProcessingException
import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.dataformat.toml.TomlMapper

import java.io.{IOException, InputStreamReader}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Paths}
import java.util.Properties
import scala.jdk.CollectionConverters._
import sparkdlbench.common.ConfigurationException

/**
 * A run's TOML file.
 *
 * @param settings
 *   the run's keys by dotted name, values as text (lists joined by commas)
 * @param spark
 *   the `[spark]` table: `master` and `spark.*` keys
 */
final case class RunFile(settings: Map[String, String], spark: Map[String, String]) {

  /**
   * With the properties of the profile that `spark_profile` names, below those of the `[spark]` table. The jar holds the
   * profiles.
   */
  def withProfile: RunFile = settings.get(RunFile.Profile).fold(this) { name =>
    val source = getClass.getResourceAsStream(s"/sparkdlbench/spark/$name.conf")
    if (source == null || !name.matches("[a-z0-9-]+"))
      throw new ConfigurationException(
        s"There is no Spark profile '$name'. This jar holds those of conf/spark/, named without .conf, such as sort or celeborn; a " +
          "file of your own goes to spark-submit --properties-file."
      )
    val properties = new Properties
    try properties.load(new InputStreamReader(source, UTF_8))
    finally source.close()
    val profile = properties.asScala.toMap
    val (own, others) = profile.partition(_._1.startsWith(Key.SparkPrefix))
    RunFile(Settings.named(own) ++ (settings - RunFile.Profile), others ++ spark)
  }

  /** Applies one `--set key=value`. */
  def set(assignment: String): RunFile = assignment.split("=", 2) match {
    case Array("master", value) => copy(spark = spark.updated("master", value))
    case Array(key, value) if key.startsWith("spark.") && !key.startsWith(Key.SparkPrefix) =>
      copy(spark = spark.updated(key, value))
    case Array(key, value) if key.nonEmpty => copy(settings = settings ++ Settings.named(Map(key -> value)))
    case _ =>
      throw new ConfigurationException(
        s"--set '$assignment' is not of the form key=value, for example --set workers=4."
      )
  }
}

object RunFile {

  /** Names a Spark profile, `conf/spark/<name>.conf`; not a key of the run, because it is gone when the session starts. */
  val Profile = "spark_profile"

  def read(path: String): RunFile = {
    val text =
      try new String(Files.readAllBytes(Paths.get(path)), UTF_8)
      catch {
        case e: IOException =>
          throw new ConfigurationException(
            s"The run file '$path' cannot be read (${e.getClass.getSimpleName}). Give the path of a TOML file, for example conf/runs/digits-mlp.toml.",
            e
          )
      }
    TomlDepth.check(text, path)
    val parsed =
      try new TomlMapper().readTree(text)
      catch {
        case e: JsonProcessingException =>
          throw new ConfigurationException(s"The run file '$path' is not valid TOML: ${e.getMessage}", e)
      }
    val name = Paths.get(path).getFileName.toString.stripSuffix(".toml")
    val spark = sparkTable(parsed.path("spark"), path)
    val all = flatten(parsed, "").filter { case (key, _) => key != "spark" && !key.startsWith("spark.") }
    RunFile(Map("name" -> name) ++ all, spark)
  }

  /** Anything else there would become a property that Spark ignores; Python's `parse_run_file` refuses the same. */
  private def sparkTable(table: JsonNode, path: String): Map[String, String] = {
    if (!table.isMissingNode && !table.isObject)
      throw new ConfigurationException(
        s"'spark' in the run file '$path' has the value $table; it must be a table, headed [spark], that holds 'master' and Spark " +
          "properties."
      )
    val properties = flatten(table, "")
    properties.keys.toSeq.sorted.filterNot(key => key == "master" || key.startsWith("spark.")).foreach { key =>
      throw new ConfigurationException(
        s"The key '$key' in the [spark] table of '$path' is no Spark property. Valid are 'master' and names that begin with 'spark.': " +
          s"did you mean 'spark.$key'? Keys of the run stand outside that table."
      )
    }
    properties
  }

  private def flatten(table: JsonNode, prefix: String): Map[String, String] =
    table.properties.asScala.toSeq.flatMap { entry =>
      val key = prefix + entry.getKey
      entry.getValue match {
        case inner if inner.isObject => flatten(inner, s"$key.")
        case items if items.isArray => Map(key -> items.elements.asScala.map(_.asText).mkString(","))
        case other => Map(key -> other.asText)
      }
    }.toMap
}
