package sparkdlbench.data

import com.fasterxml.jackson.databind.JsonNode
import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileSystem, Path}
import sparkdlbench.common.{ConfigurationException, Facts, Json}
import sparkdlbench.config.{Key, RunKeys, Settings}
import sparkdlbench.loss.{IgnoredLabel, Loss, Target}

import java.io.{BufferedInputStream, FileNotFoundException, IOException, InputStream}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.{ByteBuffer, ByteOrder}
import scala.jdk.CollectionConverters._

/**
 * A file of decoded rows: the values of `rows` rows, then their labels as little-endian 32-bit numbers: classes, or fp32, of each
 * row `RecordLayout.labels`. Of rows that have weights, each row's labels have `Target.weightBits` behind them.
 */
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
      // Versions that know classes alone refuse the others.
      "schema" ->
        (if (layout.labels > 1) RowsFolder.SeveralSchema
         else if (layout.weighted) RowsFolder.WeightsSchema
         else if (layout.hasNumbers) RowsFolder.NumbersSchema
         else RowsFolder.Schema),
      "source" -> source,
      "shape" -> layout.shape,
      "kind" -> layout.kind.name,
      "classes" -> layout.classes,
      "labels" -> (if (layout.hasNumbers) RowsFolder.Numbers else RowsFolder.Classes),
      "label_names" -> layout.labelNames,
      "columns" -> layout.columns,
      "column" -> layout.column,
      "description" -> layout.description,
      "seconds" -> seconds,
      "rows_identity" -> identity,
      "skipped" -> skipped.toMap,
      "parts" -> parts.map(part => Json.fields("file" -> part.file, "rows" -> part.rows, "test" -> part.test))
    ) ++ layout.ignored.map("ignored_label" -> _) ++ (if (layout.binary)
                                                        Seq("binary" -> true, "weighted" -> layout.weighted)
                                                      else Nil)
  )
}

private[data] final case class ShardedSets(train: ShardedRows, test: ShardedRows)

/**
 * Rows that were decoded once, in a folder that all executors see: row ids, their order and their values stay the same for
 * retries, resumed runs and any number of workers.
 */
private[data] final class RowsFolder private (path: Path, fileSystem: FileSystem, val manifest: RowsManifest) {
  private val layout = manifest.layout

  def facts(settings: Settings): DataFacts = {
    checkLabels(settings)
    val (training, testing) = counts(settings)
    if (training < 1 || testing < 1)
      throw new ConfigurationException(
        s"The data set (${layout.description}) has $training rows to train on and $testing to test on; it needs at least 1 of each. " +
          s"Without rows of their own for testing one of every ${settings(RowsFolder.testEvery)} rows tests (`data.test_every`); look at " +
          "`data.path` and `data.test_path`."
      )
    Pipeline.facts(
      DataFacts(
        training,
        testing,
        layout.shape,
        layout.classes,
        if (isSharded(settings)) s"${layout.description}, sharded over the executors" else layout.description,
        heldBytes(TakenRows.of(training, settings).rows, testing, settings),
        manifest.skipped,
        identity(TakenRows.of(training, settings).rows, settings),
        RowInput(
          layout.shape,
          valueColumns(settings),
          DataKeys.scaleOf(settings, layout.kind),
          labels = layout.labelNames,
          binary = layout.binary
        )
      ),
      settings
    )
  }

  /** A folder that a user names (`data.decoded_dir`) may be that of another task. */
  private def checkLabels(settings: Settings): Unit = {
    val asked = settings.entries.getOrElse(TableKeys.weight.name, "")
    if (asked.nonEmpty != layout.weighted)
      throw new ConfigurationException(
        s"The decoded rows in '$path' have ${if (layout.weighted) "weights, and data.weight is not set"
          else s"no weights, and data.weight is '$asked'"}. Leave " +
          s"data.decoded_dir out, so that the rows are decoded again, or ${if (layout.weighted) "name the weights' column in data.weight"
            else "leave data.weight out"}."
      )
    layout.ignored.filterNot(IgnoredLabel.of(settings).contains).foreach { label =>
      throw new ConfigurationException(
        s"The decoded rows in '$path' have rows with the label $label, which the run that decoded them ignored, and loss.ignore_label is not $label. Set it, or " +
          "leave data.decoded_dir out, so that the rows are decoded again."
      )
    }
    val loss = Loss.of(settings)
    val several = TableKeys.labels(settings).size
    if (several > 1 && several != layout.labels)
      throw new ConfigurationException(
        s"The rows that were decoded to '$path' have ${layout.labels} label${if (layout.labels == 1) "" else "s"} each, and data.label names $several columns. Leave " +
          "data.decoded_dir out, so that the rows are decoded again, or name those of the labels."
      )
    if (loss.hasNumbers != layout.hasNumbers || (loss.isBinary && !layout.binary)) {
      val held = if (layout.hasNumbers) "numbers" else s"${layout.classes} classes"
      val remedy = if (layout.hasNumbers) RecordLayout.Remedy else "set loss.name=cross-entropy"
      throw new ConfigurationException(
        s"The labels of the decoded rows in '$path' are $held, and loss.name=${settings(
            RunKeys.loss
          )} needs ${if (loss.isBinary) "0 and 1" else if (layout.hasNumbers) "classes" else "numbers"}. " +
          s"Leave data.decoded_dir out, so that the rows are decoded again, or $remedy."
      )
    }
  }

  private def heldBytes(training: Int, testing: Int, settings: Settings): Long =
    if (!isSharded(settings)) {
      val rows = training.toLong + testing
      Pipeline.heldBytes(rows, layout.rowBytes, settings) + rows * (layout.labelBytes - 4)
    } else {
      val held = Placement.heldBytes(training, layout.rowBytes + layout.labelBytes - 4, settings)
      Placement.check(held, settings)
      held
    }

  /** A sharded set's order is another than that of a set which every executor holds. */
  private def identity(training: Int, settings: Settings): String =
    if (!isSharded(settings)) manifest.identity
    else {
      val cut = sharding(training, RunKeys.globalBatch(settings), settings)
      s"${manifest.identity} in ${cut.shards} shards, ${cut.blocksPerWindow} blocks of ${cut.blockRows} rows".trim
    }

  /** Whether executors read their own parts of the set, in place of holding it. */
  def isSharded(settings: Settings): Boolean =
    Placement.isSharded(manifest.allRows.toLong, layout.rowBytes, settings)

  private def sharding(training: Int, batch: Int, settings: Settings): Sharding =
    Placement.sharding(training, layout.rowBytes, batch, settings)

  /** Where a table's row has its values. A CSV file's names are those of all its columns, the label's as well. */
  private def valueColumns(settings: Settings): Seq[String] =
    if (layout.column.nonEmpty) Seq(layout.column)
    else if (layout.columns.size > layout.width) TableKeys.valueColumns(layout.columns, settings)
    else layout.columns

  /** All rows to train on, and those to test on. */
  private def counts(settings: Settings): (Int, Int) = {
    val named = manifest.rows(test = true)
    val testing = if (named > 0) named else everyNth(settings).testRows
    (manifest.allRows - testing, testing)
  }

  private def everyNth(settings: Settings): EveryNth =
    new EveryNth(manifest.allRows, settings(RowsFolder.testEvery))

  /** The rows as they are stored, read where they are. */
  def sharded(settings: Settings): ShardedSets = {
    val (training, testing) = counts(settings)
    val taken = TakenRows.of(training, settings)
    def rows(parts: Seq[RowsPart], count: Int, stored: Int => Int) =
      reading(parts, count, stored, taken.rows, settings)
    if (manifest.rows(test = true) > 0) {
      val (test, train) = manifest.parts.partition(_.test)
      ShardedSets(rows(train, taken.rows, taken(_)), rows(test, testing, row => row))
    } else {
      val every = everyNth(settings)
      ShardedSets(
        rows(manifest.parts, taken.rows, row => every.training(taken(row))),
        rows(manifest.parts, testing, every(_))
      )
    }
  }

  private def reading(parts: Seq[RowsPart], count: Int, stored: Int => Int, training: Int, settings: Settings) =
    new ShardedRows(
      new PartRows(this, parts.toIndexedSeq, DataKeys.scaleOf(settings, layout.kind)),
      count,
      stored,
      sharding(training, _, settings),
      settings(Placement.readTimeout)
    )

  /** All rows in their order, none left out to test on; read where they are. */
  def feed(settings: Settings): RowFeed = {
    checkLengths()
    val rows = manifest.allRows
    RowFeed(
      reading(manifest.parts, rows, row => row, rows, settings),
      layout.shape,
      layout.classes,
      identity(rows, settings)
    )
  }

  def open(settings: Settings): DataSets = {
    checkLengths()
    if (isSharded(settings)) {
      val stored = sharded(settings)
      val change = ShardedChange.of(path.toString, settings, fileSystem.getConf)
      Pipeline.changed(weighed(DataSets(stored.train, stored.test)), change, layout.shape, settings)
    } else openHeld(settings)
  }

  private def openHeld(settings: Settings): DataSets = {
    val (training, testing) = counts(settings)
    Pipeline.taking(training, layout.shape, settings) { taken =>
      val held = taken.rows + testing
      def store(parts: Seq[RowsPart], rows: Int, wanted: Int => Boolean): RowStore =
        read(parts, Pipeline.allocate(rows, layout.rowBytes, held.toLong, settings), wanted, settings)
      if (manifest.rows(test = true) > 0) {
        val (test, train) = manifest.parts.partition(_.test)
        weighed(DataSets(store(train, taken.rows, taken.has(_)), store(test, testing, _ => true)))
      } else {
        val every = everyNth(settings)
        weighed(every.split(store(manifest.parts, held, every.holds(_, taken)), taken))
      }
    }
  }

  /** The sets with weights whose mean is 1 in each, so that a mean over rows is the weighted mean. */
  private def weighed(sets: DataSets): DataSets =
    if (!layout.weighted) sets
    else
      sets.copy(
        train = WeightedRows.of(sets.train, "train on", layout.description),
        test = WeightedRows.of(sets.test, "test on", layout.description)
      )

  def openParts(most: Int): OpenParts = new OpenParts(fileSystem, most)
  def file(part: RowsPart): Path = new Path(path, part.file)

  /** Before memory is taken for as many rows as the manifest says. */
  private def checkLengths(): Unit = manifest.parts.foreach { part =>
    val file = new Path(path, part.file)
    val size = part.rows.toLong * (layout.rowBytes + layout.labelBytes)
    try {
      val found = fileSystem.getFileStatus(file).getLen
      if (found != size) damaged(file, s"has $found bytes and should have $size")
    } catch { case cause: IOException => unreadable(file, cause) }
  }

  /**
   * @param blocks
   *   for as many rows as are wanted
   * @param wanted
   *   asked by a row's number among those of all `parts`
   */
  private def read(
      parts: Seq[RowsPart],
      blocks: RowBlocks,
      wanted: Int => Boolean,
      settings: Settings
  ): RowStore = {
    val labels = new HeldLabels(blocks.rows, layout)
    parts.foldLeft((0, 0)) { case ((number, at), part) =>
      (number + part.rows, readPart(part, blocks, labels, at, row => wanted(number + row)))
    }
    labels.store(blocks, DataKeys.scaleOf(settings, layout.kind))
  }

  /** @return the place behind the last of the part's rows that are wanted, which go to the places from `first` on */
  private def readPart(
      part: RowsPart,
      blocks: RowBlocks,
      labels: HeldLabels,
      first: Int,
      wanted: Int => Boolean
  ): Int = {
    val file = new Path(path, part.file)
    try {
      val stream = new BufferedInputStream(fileSystem.open(file), RowsFolder.StreamBytes)
      try {
        blocks.fillSome(stream, first, part.rows, wanted)
        var at = first
        eachLabel(stream, file, 0, part.rows) { (row, label, others) =>
          if (wanted(row)) { labels.put(at, label, others); at += 1 }
        }
        at
      } finally stream.close()
    } catch { case cause: IOException => unreadable(file, cause) }
  }

  /**
   * Decodes the labels of the rows [`from`, `from + count`) of a part, and checks each.
   *
   * @param stream
   *   stands at the first of them
   * @param use
   *   of (row, its first label as `Batch` has it, the others, in an array that is used again), in the order of the rows
   */
  def eachLabel(stream: InputStream, file: Path, from: Int, count: Int)(
      use: (Int, Long, Array[Int]) => Unit
  ): Unit = {
    val each = layout.labelBytes
    val bytes = new Array[Byte](math.min(math.max(RowsFolder.StreamBytes, each).toLong, count.toLong * each).toInt)
    val others = new Array[Int](layout.labels - 1)
    val end = from + count
    var row = from
    while (row < end) {
      val some = math.min(bytes.length / each, end - row)
      if (stream.readNBytes(bytes, 0, some * each) < some * each) damaged(file, "ends before its last label")
      val numbers = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asIntBuffer()
      (0 until some).foreach { index =>
        val first = index * (each / 4)
        val label = numbers.get(first)
        checkLabel(label, file, row + index)
        var at = 0
        while (at < others.length) {
          others(at) = numbers.get(first + 1 + at)
          checkLabel(others(at), file, row + index)
          at += 1
        }
        val own =
          if (layout.weighted) weighted(label, numbers.get(first + layout.labels), file, row + index) else label.toLong
        use(row + index, own, others)
      }
      row += some
    }
  }

  private def weighted(label: Int, weightBits: Int, file: Path, row: Int): Long = {
    val both = Target.weightedBy(label, weightBits)
    val weight = Target.weight(both)
    if (!(weight >= 0) || weight.isInfinite)
      damaged(file, s"has the weight $weight in row $row; weights are finite numbers of at least 0")
    both
  }

  private def checkLabel(label: Int, file: Path, row: Int): Unit =
    if (layout.hasNumbers) {
      if (!layout.takes(Target.value(label)))
        damaged(
          file,
          s"has the label ${Target.value(label)} in row $row, ${if (layout.binary) s"and ${layout.labelsSay}"
            else "no finite number"}"
        )
    } else if (!layout.takes(label))
      damaged(
        file,
        s"has the label $label in row $row, and with ${layout.classes} classes labels are 0 to ${layout.classes - 1}"
      )

  def unreadable(file: Path, cause: IOException): Nothing =
    damaged(file, s"cannot be read on host ${Facts.hostName} (${cause.getMessage})", cause)

  def damaged(file: Path, what: String, cause: Throwable = null): Nothing =
    throw new ConfigurationException(
      s"File '$file' of the decoded rows $what. Delete the folder '$path', and the next run decodes the data set again; all hosts " +
        "must see it (`data.cache_dir`).",
      cause
    )
}

private[data] object RowsFolder {
  val Schema = 1

  /** Of rows whose labels are numbers. */
  val NumbersSchema = 2

  /** Of rows that have weights; their labels are classes or numbers. */
  val WeightsSchema = 3

  /** Of rows that have several labels, with weights or without. */
  val SeveralSchema = 4
  val Classes = "classes"
  val Numbers = "float32"
  val Manifest = "manifest.json"
  private val StreamBytes = 1 << 16
  private val MostManifestBytes = 256 << 20
  private val MostRowBytes = Int.MaxValue - 8L
  private val PlainName = """[A-Za-z0-9_][A-Za-z0-9._-]*""".r.pattern

  val testEvery: Key[Int] = Key.int(
    "data.test_every",
    "5",
    2,
    "Where no rows are named for testing: of every n rows one tests, drawn by their number; the others train"
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
          s"The folder '$path' of decoded rows cannot be read on host ${Facts.hostName}: ${cause.getMessage}. Check `data.cache_dir`, and " +
            "your permissions.",
          cause
        )
    }
  }

  def require(path: String, hadoop: Configuration): RowsFolder = find(path, hadoop).getOrElse(
    throw new ConfigurationException(
      s"The folder '$path' has no $Manifest, so it holds no decoded rows that host ${Facts.hostName} can see. Driver and executors must all " +
        "see it under the same name: set `data.cache_dir` to a folder of a shared file system."
    )
  )

  private def parse(folder: Path, text: String): RowsManifest =
    try {
      val json = Json.read(text)
      val schema = json.path("schema").asInt
      if (schema < Schema || schema > SeveralSchema)
        throw new IllegalArgumentException(
          s"its schema is $schema, and this version reads $Schema to $SeveralSchema"
        )
      val kind =
        ValueKind.named(json.path("kind").asText).getOrElse(throw new IllegalArgumentException("it has no kind"))
      val layout = RecordLayout(
        shape(json.path("shape"), kind),
        kind,
        classesOf(json, schema),
        json.path("description").asText,
        texts(json.path("label_names")),
        texts(json.path("columns")),
        json.path("column").asText(""),
        weighted = schema == WeightsSchema || (schema == SeveralSchema && json.path("weighted").asBoolean),
        ignored = Some(json.path("ignored_label")).filter(_.isInt).map(_.asInt),
        binary = schema == SeveralSchema || json.path("binary").asBoolean
      )
      val parts = partsOf(json.path("parts"))
      val skipped = Skipped(json.path("skipped").path("count").asLong, texts(json.path("skipped").path("listed")))
      RowsManifest(
        json.path("source").asText,
        layout,
        parts,
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

  private def classesOf(json: JsonNode, schema: Int): Int =
    if (schema == SeveralSchema) int(json, "classes", 2)
    else if (schema == Schema || (schema == WeightsSchema && json.path("labels").asText == Classes))
      int(json, "classes", 2)
    else {
      val labels = json.path("labels").asText
      if (labels != Numbers || json.path("classes").asInt != RecordLayout.Regression)
        throw new IllegalArgumentException(
          s"its labels are '$labels' of ${json.path("classes")} classes; valid with schema $schema are '$Numbers' of ${RecordLayout.Regression}"
        )
      RecordLayout.Regression
    }

  /** A row's values, whose bytes a number of 32 bits must hold. */
  private def shape(list: JsonNode, kind: ValueKind): Seq[Int] = {
    val sizes = list.elements.asScala.toList
    val isValid = sizes.nonEmpty && sizes.forall(size => size.isInt && size.asInt > 0)
    // Each factor is below 2^31, so that a product over the limit is seen before it overflows.
    val values =
      if (isValid) sizes.foldLeft(1L)((sofar, size) => if (sofar > MostRowBytes) sofar else sofar * size.asInt) else 0L
    if (!isValid || values * kind.bytes > MostRowBytes)
      throw new IllegalArgumentException(
        s"its shape is $list; valid are whole numbers above 0 whose row of ${kind.name} has at most $MostRowBytes bytes"
      )
    sizes.map(_.asInt)
  }

  private def partsOf(list: JsonNode): List[RowsPart] = {
    val parts = list.elements.asScala.map { part =>
      val file = part.path("file").asText
      if (!PlainName.matcher(file).matches)
        throw new IllegalArgumentException(
          s"the file of a part is '$file'; valid are names without a folder, of letters, digits, '.', '_' and '-'"
        )
      RowsPart(file, int(part, "rows", 1), part.path("test").asBoolean)
    }.toList
    val rows = parts.map(_.rows.toLong).sum
    if (rows > Int.MaxValue)
      throw new IllegalArgumentException(s"it has $rows rows, at most ${Int.MaxValue} are supported")
    parts.groupBy(_.file).find(_._2.size > 1).foreach { case (file, _) =>
      throw new IllegalArgumentException(s"the file '$file' is there twice")
    }
    parts
  }

  private def int(json: JsonNode, name: String, least: Int): Int = {
    val found = json.path(name)
    if (!found.isInt || found.asInt < least)
      throw new IllegalArgumentException(s"its '$name' is $found; valid is a whole number, at least $least")
    found.asInt
  }

  private def texts(list: JsonNode): Seq[String] = list.elements.asScala.map(_.asText).toList
}
