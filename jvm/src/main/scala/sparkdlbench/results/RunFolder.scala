package sparkdlbench.results

import sparkdlbench.ConfigurationException

import java.io.{IOException, Writer}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path, Paths, StandardCopyOption, StandardOpenOption}
import java.time.format.DateTimeFormatter
import java.time.{Instant, ZoneOffset}
import scala.collection.immutable.ListMap

/**
 * The folder of one run: run.json, events.jsonl, page.html, summary.json and others (docs/reference/metrics.md). Files are replaced whole (a
 * reader never sees half of one); events are appended and flushed one by one. Used by one thread at a time.
 */
final class RunFolder private (val path: Path) extends AutoCloseable {
  private val events: Writer =
    Files.newBufferedWriter(path.resolve("events.jsonl"), UTF_8, StandardOpenOption.CREATE, StandardOpenOption.APPEND)

  /** Appends one MLPerf-style event. */
  def event(key: String, value: Any, metadata: (String, Any)*): Unit = {
    val line = ListMap[String, Any](
      "schema" -> RunFolder.Schema,
      "time_ms" -> System.currentTimeMillis(),
      "key" -> key,
      "value" -> value,
      "metadata" -> ListMap(metadata: _*)
    )
    events.write(Json.line(line) + "\n")
    events.flush()
  }

  def write(file: String, content: String): Unit = {
    val partial = path.resolve(s".$file.partial")
    Files.write(partial, content.getBytes(UTF_8))
    Files.move(partial, path.resolve(file), StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.ATOMIC_MOVE)
    ()
  }

  override def close(): Unit = events.close()
}

object RunFolder {

  /** Version of the files' layout (docs/reference/metrics.md). */
  val Schema = 1
  private val stamp = DateTimeFormatter.ofPattern("yyyyMMdd-HHmmss-SSS").withZone(ZoneOffset.UTC)

  /** Makes `<results>/<time>-<name>/`. */
  def create(results: String, name: String): RunFolder = {
    val safe = name.replaceAll("[^A-Za-z0-9._-]", "-")
    val path = Paths.get(results).toAbsolutePath.normalize.resolve(s"${stamp.format(Instant.now())}-$safe")
    try new RunFolder(Files.createDirectories(path))
    catch {
      case e: IOException =>
        throw new ConfigurationException(
          s"The results folder $path cannot be made (${e.getMessage}). Name a folder that can be written with --set results=DIR.",
          e
        )
    }
  }
}
