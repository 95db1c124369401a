package sparkdlbench.model

import com.fasterxml.jackson.core.JsonProcessingException
import com.fasterxml.jackson.databind.ObjectMapper
import com.fasterxml.jackson.dataformat.toml.TomlMapper
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Key, Settings}

import java.io.IOException
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path, Paths}

/** A user's own model: a specification in a TOML or JSON file (docs/reference/models.md), no code. Read on the driver. */
final class FileFamily extends ModelFamily {
  def name = "file"
  def doc = "A model of your own: layers listed in a TOML or JSON file"
  override def keys: Seq[Key[_]] = Seq(FileFamily.spec)
  override def usual: Option[(Seq[Int], Int)] = None

  def build(inputShape: Seq[Int], classes: Int, settings: Settings): ModelSpec = {
    val path = settings(FileFamily.spec)
    if (path.isEmpty)
      throw new ConfigurationException(
        "model.name=file needs model.spec, the path of a model specification in TOML or JSON. Set it, for example --set model.spec=my-net.toml; " +
          "docs/reference/models.md has an example."
      )
    val spec = FileFamily.read(Paths.get(path))
    if (LayerKind.values(spec.inputShape) != LayerKind.values(inputShape) || spec.classes != classes)
      throw new ConfigurationException(
        s"The model in '$path' is for rows of ${spec.inputShape.mkString("×")} values and ${spec.classes} classes, and the data set has rows of " +
          s"${inputShape.mkString("×")} and $classes classes. Change input_shape or classes in that file, or the data set."
      )
    spec
  }
}

object FileFamily {
  val spec: Key[String] =
    Key.text(
      "model.spec",
      "",
      "Path, on the driver's host, of the specification that model.name=file reads (.toml or .json)"
    )

  private[model] def read(path: Path): ModelSpec = {
    val text =
      try new String(Files.readAllBytes(path), UTF_8)
      catch {
        case error: IOException =>
          throw new ConfigurationException(
            s"The model specification '$path' (model.spec) cannot be read (${error.getClass.getSimpleName}). Give the path of a TOML or JSON file " +
              "on the driver's host.",
            error
          )
      }
    val mapper = if (path.toString.endsWith(".toml")) new TomlMapper() else new ObjectMapper
    try ModelJson.read(mapper.readTree(text))
    catch {
      case error: JsonProcessingException =>
        throw new ConfigurationException(
          s"The model specification '$path' is not valid ${if (path.toString.endsWith(".toml")) "TOML" else "JSON"}: ${error.getMessage}",
          error
        )
      case error: ConfigurationException => throw new ConfigurationException(s"In '$path': ${error.getMessage}", error)
    }
  }
}
