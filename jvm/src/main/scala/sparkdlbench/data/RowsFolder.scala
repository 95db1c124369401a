package sparkdlbench.data

import com.fasterxml.jackson.databind.JsonNode
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, Path}
import sparkdlbench.ConfigurationException
import sparkdlbench.config.{Key, Settings}
import sparkdlbench.results.Json

import java.io.{BufferedInputStream, FileNotFoundException, IOException}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.{ByteBuffer, ByteOrder}
import scala.jdk.CollectionConverters._

/** A file of decoded rows: the values of `rows` rows, then their labels as little-endian 32-bit numbers. */
private[data] final case class RowsPart(file: String, rows: Int, test: Boolean)

/**
 * `manifest.json` of a folder of decoded rows. The parts' order is the order of the rows.
 *
 * @param identity
 *   as in DataFacts
 */
private[data] final case class RowsManifest(
    source: String,
    layout: RecordLayout,
    parts: Seq[RowsPart],
    skipped: Skipped,
    seconds: Double,
    identity: String = ""
) {
  def rows(test: Boolean): Int = parts.filter(_.test == test).map(_.rows).sum
  def allRows: Int = parts.map(_.rows).sum

  def toJson: String = Json.text(
    Json.fields(
      "schema" -> RowsFolder.Schema,
      "source" -> source,
      "shape" -> layout.shape,
      "kind" -> layout.kind.name,
      "classes" -> layout.classes,
      "label_names" -> layout.labelNames,
      "columns" -> layout.columns,
      "description" -> layout.description,
      "seconds" -> seconds,
      "rows_identity" -> identity,
      "skipped" -> skipped.toMap,
      "parts" -> parts.map(part => Json.fields("file" -> part.file, "rows" -> part.rows, "test" -> part.test))
    )
  )
}

/**
 * Rows that were decoded once, in a folder that all executors see: row ids, their order and their values stay the same for
 * retries, resumed runs and any number of workers.
 */
private[data] final class RowsFolder private (path: Path, fileSystem: FileSystem, val manifest: RowsManifest) {
  private val layout = manifest.layout

  def facts(settings: Settings): DataFacts = {
    val every = settings(RowsFolder.testEvery)
    val named = manifest.rows(test = true)
    val testing = if (named > 0) named else EveryNth.testRows(manifest.allRows, every)
    val (all, training) = (manifest.allRows, manifest.allRows - testing)
    if (training < 1 || testing < 1)
      throw new ConfigurationException(
        s"The data set (${layout.description}) has $training rows to train on and $testing to test on; it needs at least 1 of each. " +
          s"Without rows of their own for testing every ${every}th row tests (`data.test_every`); look at `data.path` and `data.test_path`."
      )
    Pipeline.facts(
      DataFacts(
        training,
        testing,
        layout.shape,
        layout.classes,
        layout.description,
        Pipeline.heldBytes(all.toLong, layout.rowBytes, settings),
        manifest.skipped,
        manifest.identity
      ),
      settings
    )
  }

  def open(settings: Settings): DataSets = {
    val stored =
      if (manifest.rows(test = true) > 0) DataSets(store(_.test == false, settings), store(_.test, settings))
      else EveryNth.split(store(_ => true, settings), settings(RowsFolder.testEvery))
    Pipeline.sets(stored, layout.shape, settings)
  }

  private def store(which: RowsPart => Boolean, settings: Settings): RowStore = {
    val parts = manifest.parts.filter(which)
    val rows = parts.map(_.rows).sum
    val blocks = Pipeline.allocate(rows, layout.rowBytes, manifest.allRows.toLong, settings)
    val labels = new Array[Int](rows)
    parts.foldLeft(0) { (first, part) => read(part, blocks, labels, first); first + part.rows }
    new HeldRowStore(blocks, layout.kind, labels, DataKeys.scaleOf(settings, layout.kind))
  }

  private def read(part: RowsPart, blocks: RowBlocks, labels: Array[Int], first: Int): Unit = {
    val file = new Path(path, part.file)
    val wanted = part.rows.toLong * (layout.rowBytes + 4)
    try {
      val found = fileSystem.getFileStatus(file).getLen
      if (found != wanted) damaged(file, s"has $found bytes and should have $wanted")
      val stream = new BufferedInputStream(fileSystem.open(file), RowsFolder.StreamBytes)
      try {
        blocks.fill(stream, first, part.rows)
        val numbers = stream.readNBytes(part.rows * 4)
        if (numbers.length < part.rows * 4) damaged(file, "ends before its last label")
        ByteBuffer.wrap(numbers).order(ByteOrder.LITTLE_ENDIAN).asIntBuffer().get(labels, first, part.rows)
        ()
      } finally stream.close()
    } catch {
      case cause: IOException =>
        damaged(file, s"cannot be read on host ${DataFiles.hostName} (${cause.getMessage})", cause)
    }
  }

  private def damaged(file: Path, what: String, cause: Throwable = null): Nothing =
    throw new ConfigurationException(
      s"File '$file' of the decoded rows $what. Delete the folder '$path', and the next run decodes the data set again; all hosts " +
        "must see it (`data.cache_dir`).",
      cause
    )
}

private[data] object RowsFolder {
  val Schema = 1
  val Manifest = "manifest.json"
  private val StreamBytes = 1 << 16
  private val MostManifestBytes = 256 << 20

  val testEvery: Key[Int] = Key.int(
    "data.test_every",
    "5",
    2,
    "Where no rows are named for testing: every n-th row tests, the others train"
  )

  /** The folder's rows, or None where it has no manifest. */
  def find(path: String, hadoop: Configuration): Option[RowsFolder] = {
    val folder = new Path(path)
    val fileSystem = folder.getFileSystem(hadoop)
    try {
      val stream = fileSystem.open(new Path(folder, Manifest))
      val text =
        try new String(stream.readNBytes(MostManifestBytes), UTF_8)
        finally stream.close()
      Some(new RowsFolder(folder, fileSystem, parse(folder, text)))
    } catch {
      case _: FileNotFoundException => None
      case cause: IOException =>
        throw new ConfigurationException(
          s"The folder '$path' of decoded rows cannot be read on host ${DataFiles.hostName}: ${cause.getMessage}. Check `data.cache_dir`, and " +
            "your permissions.",
          cause
        )
    }
  }

  def require(path: String, hadoop: Configuration): RowsFolder = find(path, hadoop).getOrElse(
    throw new ConfigurationException(
      s"The folder '$path' has no $Manifest, so it holds no decoded rows that host ${DataFiles.hostName} can see. Driver and executors must all " +
        "see it under the same name: set `data.cache_dir` to a folder of a shared file system."
    )
  )

  private def parse(folder: Path, text: String): RowsManifest =
    try {
      val json = Json.read(text)
      val schema = json.path("schema").asInt
      if (schema != Schema) throw new IllegalArgumentException(s"its schema is $schema, and this version reads $Schema")
      val kind =
        ValueKind.named(json.path("kind").asText).getOrElse(throw new IllegalArgumentException("it has no kind"))
      val shape = texts(json.path("shape")).map(_.toInt)
      if (shape.isEmpty || shape.exists(_ < 1)) throw new IllegalArgumentException(s"its shape is $shape")
      val layout = RecordLayout(
        shape,
        kind,
        json.path("classes").asInt,
        json.path("description").asText,
        texts(json.path("label_names")),
        texts(json.path("columns"))
      )
      val parts = json.path("parts").elements.asScala.map { part =>
        RowsPart(part.path("file").asText, part.path("rows").asInt, part.path("test").asBoolean)
      }
      val skipped = Skipped(json.path("skipped").path("count").asLong, texts(json.path("skipped").path("listed")))
      RowsManifest(
        json.path("source").asText,
        layout,
        parts.toList,
        skipped,
        json.path("seconds").asDouble,
        json.path("rows_identity").asText("")
      )
    } catch {
      case cause @ (_: IllegalArgumentException | _: com.fasterxml.jackson.core.JsonProcessingException) =>
        throw new ConfigurationException(
          s"File '$Manifest' in '$folder' does not describe decoded rows: ${cause.getMessage}. Delete the folder, and the next run decodes " +
            "the data set again.",
          cause
        )
    }

  private def texts(list: JsonNode): Seq[String] = list.elements.asScala.map(_.asText).toList
}
