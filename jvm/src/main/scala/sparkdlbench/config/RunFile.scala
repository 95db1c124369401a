package sparkdlbench.config

import com.electronwill.nightconfig.core.{Config, UnmodifiableConfig}
import com.electronwill.nightconfig.core.io.ParsingException
import com.electronwill.nightconfig.toml.TomlParser
import sparkdlbench.ConfigurationException

import java.io.IOException
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Paths}
import scala.jdk.CollectionConverters._

/**
 * A run's TOML file.
 *
 * @param settings
 *   the run's keys by dotted name, values as text (lists joined by commas)
 * @param spark
 *   the `[spark]` table: `master` and `spark.*` keys
 */
final case class RunFile(settings: Map[String, String], spark: Map[String, String]) {

  /** Applies one `--set key=value`. */
  def set(assignment: String): RunFile = assignment.split("=", 2) match {
    case Array("master", value) => copy(spark = spark.updated("master", value))
    case Array(key, value) if key.startsWith("spark.") && !key.startsWith(Key.SparkPrefix) =>
      copy(spark = spark.updated(key, value))
    case Array(key, value) if key.nonEmpty => copy(settings = settings ++ Settings.named(Map(key -> value)))
    case _ =>
      throw new ConfigurationException(s"--set '$assignment' is not of the form key=value, for example --set workers=4.")
  }
}

object RunFile {
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
    val parsed =
      try new TomlParser().parse(text)
      catch {
        case e: ParsingException =>
          throw new ConfigurationException(s"The run file '$path' is not valid TOML: ${e.getMessage}", e)
      }
    val name = Paths.get(path).getFileName.toString.stripSuffix(".toml")
    val spark = Option(parsed.get[Any]("spark")).collect { case table: Config => flatten(table, "") }.getOrElse(Map.empty)
    val all = flatten(parsed, "").filter { case (key, _) => key != "spark" && !key.startsWith("spark.") }
    RunFile(Map("name" -> name) ++ all, spark)
  }

  private def flatten(table: UnmodifiableConfig, prefix: String): Map[String, String] =
    table.entrySet.asScala.toSeq.flatMap { entry =>
      val key = entry.getKey
      entry.getValue[Any] match {
        case inner: UnmodifiableConfig => flatten(inner, s"$prefix$key.")
        case items: java.util.List[_] => Map(s"$prefix$key" -> items.asScala.mkString(","))
        case other => Map(s"$prefix$key" -> other.toString)
      }
    }.toMap
}
