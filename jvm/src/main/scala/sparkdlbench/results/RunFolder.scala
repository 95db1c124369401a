package sparkdlbench.results

import sparkdlbench.ConfigurationException
import sparkdlbench.config.Redaction

import java.io.{IOException, Writer}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.attribute.PosixFilePermission.{OTHERS_EXECUTE, OTHERS_READ, OTHERS_WRITE}
import java.nio.file.{Files, Path, Paths, StandardCopyOption, StandardOpenOption}
import java.time.format.DateTimeFormatter
import java.time.{Instant, ZoneOffset}
import scala.collection.immutable.ListMap

/**
 * The folder of one run: run.json, events.jsonl, page.html, summary.json and others (docs/metrics.md). Files are replaced whole (a
 * reader never sees half of one); events are appended and flushed one by one. They hold the configuration, without its secrets, and other users of the
 * host may not read them. Used by one thread at a time.
 */
final class RunFolder private (val path: Path) extends AutoCloseable {
  private val events: Writer =
    Files.newBufferedWriter(path.resolve("events.jsonl"), UTF_8, StandardOpenOption.CREATE, StandardOpenOption.APPEND)
  RunFolder.hideFromOthers(path.resolve("events.jsonl"))

  /** Appends one MLPerf-style event. */
  def event(key: String, value: Any, metadata: (String, Any)*): Unit = {
    val line = ListMap[String, Any](
      "schema" -> RunFolder.Schema,
      "time_ms" -> System.currentTimeMillis(),
      "key" -> key,
      "value" -> value,
      "metadata" -> ListMap(metadata: _*)
    )
    RunFolder.named(path.resolve("events.jsonl")) {
      events.write(Json.line(Redaction.tree(line)) + "\n")
      events.flush()
    }
  }

  def write(file: String, content: String): Unit = {
    val partial = path.resolve(s".$file.partial")
    RunFolder.named(path.resolve(file)) {
      try {
        Files.write(partial, content.getBytes(UTF_8))
        RunFolder.hideFromOthers(partial)
        Files.move(partial, path.resolve(file), StandardCopyOption.REPLACE_EXISTING, StandardCopyOption.ATOMIC_MOVE)
      } finally Files.deleteIfExists(partial)
    }: Unit
  }

  override def close(): Unit = RunFolder.named(path.resolve("events.jsonl"))(events.close())
}

object RunFolder {

  /** Version of the files' layout (docs/metrics.md). */
  val Schema = 1
  private val stamp = DateTimeFormatter.ofPattern("yyyyMMdd-HHmmss-SSS").withZone(ZoneOffset.UTC)

  /** What cannot be written names its file, and says what to do. */
  private def named[T](file: Path)(write: => T): T =
    try write
    catch {
      case cause: IOException =>
        throw WriteFailure(s"The run's file '$file'", cause, "or move the results with --set results=DIR")
    }

  private def hideFromOthers(file: Path): Unit =
    if (file.getFileSystem.supportedFileAttributeViews.contains("posix")) {
      val permissions = Files.getPosixFilePermissions(file)
      Seq(OTHERS_READ, OTHERS_WRITE, OTHERS_EXECUTE).foreach(permissions.remove(_))
      Files.setPosixFilePermissions(file, permissions): Unit
    }

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
