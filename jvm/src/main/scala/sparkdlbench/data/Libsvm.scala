package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import org.apache.spark.SparkContext
import org.apache.spark.util.SerializableConfiguration
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Key, Settings}

/**
 * LIBSVM text: `label index:value index:value …` a line, indices from 1 on, ascending; what is not named is 0. Rows are held densely. The
 * rows' length is that of `data.shape`, or else the highest index of all rows, which takes a job of its own to find.
 */
final class Libsvm extends DataSource with FileSource {
  def name = "libsvm"
  def doc = "LIBSVM text, held densely, from any Hadoop file system, decoded in parts"
  override def givesNumbers: Boolean = true
  def ownKeys: Seq[Key[_]] =
    FileSource.path ++ Seq(TableKeys.labelNames, TableKeys.heldAs, DataKeys.shape, FileSource.splitBytes)

  def splits(settings: Settings, hadoop: Configuration): Seq[Split] =
    FileSource.files(settings, hadoop).flatMap { case (file, test) =>
      Split.ranges(file, test, settings(FileSource.splitBytes))
    }

  override def plan(settings: Settings, spark: SparkContext): RecordPlan =
    if (settings(DataKeys.shape).nonEmpty) super.plan(settings, spark)
    else super.plan(settings.updated(DataKeys.shape, Libsvm.width(scan(settings, spark), settings).toString), spark)

  def layout(splits: Seq[Split], settings: Settings, hadoop: Configuration): RecordLayout = RecordLayout(
    settings(DataKeys.shape),
    ValueKind.named(settings(TableKeys.heldAs)).get,
    TableKeys.classes(settings),
    s"LIBSVM text from ${settings(DataKeys.path)}",
    TableKeys.names(settings, 1, Nil),
    ignored = TableKeys.ignored(settings),
    binary = TableKeys.isBinary(settings)
  )

  def decode(split: Split, settings: Settings, hadoop: Configuration, sink: RecordSink): Unit = {
    val values = new Array[Float](sink.layout.width)
    TextLines.foreach(split, hadoop, sink) { (line, record, offset) =>
      LibsvmLine.parse(line, values) match {
        case Right("") => () // a comment
        case Right(text) =>
          sink.layout.label(text) match {
            case Some(label) => sink.floats(values, label, record, offset)
            case None => sink.bad(record, offset, s"the label is '$text'; ${sink.layout.labelsSay(text)}")
          }
        case Left(reason) => sink.bad(record, offset, reason)
      }
    }
  }

  private def scan(settings: Settings, sc: SparkContext): LibsvmScan = {
    val parts = splits(settings, sc.hadoopConfiguration)
    val hadoop = new SerializableConfiguration(sc.hadoopConfiguration)
    sc.setJobDescription("sparkdl-bench: the highest index of the LIBSVM files")
    try sc.parallelize(parts, parts.size).map(Libsvm.scan(_, settings, hadoop.value)).reduce(_ + _)
    finally sc.setJobDescription(null)
  }
}

/**
 * What lines of LIBSVM text hold.
 *
 * @param rows
 *   lines that are rows
 * @param highest
 *   index in them; 0 where none has a value
 * @param characters
 *   of all lines, bad ones and comments too
 * @param bad
 *   lines that are none
 */
private[data] final case class LibsvmScan(rows: Long, highest: Int, characters: Long, bad: Skipped) {
  def +(other: LibsvmScan): LibsvmScan =
    LibsvmScan(
      rows + other.rows,
      math.max(highest, other.highest),
      characters + other.characters,
      bad + other.bad
    )
}

private[data] object Libsvm {

  /** Higher indices are taken for damage, here; `data.shape` allows longer rows. */
  val MostAutomatic: Int = 1 << 20

  /** Rows that take more bytes than this for each character of the text are taken for damage, here. */
  val MostBytes: Int = 256

  /** Bad lines decide nothing; they are found again, and told, when they are decoded. */
  def scan(split: Split, settings: Settings, hadoop: Configuration): LibsvmScan = {
    var (rows, characters, highest) = (0L, 0L, 0)
    val layout =
      RecordLayout(
        Seq(1),
        ValueKind.Float32,
        TableKeys.classes(settings),
        "",
        TableKeys.names(settings, 1, Nil),
        ignored = TableKeys.ignored(settings),
        binary = TableKeys.isBinary(settings)
      )
    val sink = new RecordSink(layout, skip = true, Int.MaxValue) {
      protected def accept(row: Array[Byte], label: Int): Unit = ()
    }
    sink.file = split.file.path
    sink.partStart = split.from
    TextLines.foreach(split, hadoop, sink) { (line, record, offset) =>
      characters += line.length + 1
      LibsvmLine.check(line, MostAutomatic) match {
        case Right(("", _)) => () // a comment
        case Right((text, last)) =>
          if (layout.label(text).isEmpty) sink.bad(record, offset, s"the label is '$text'; ${layout.labelsSay(text)}")
          else {
            rows += 1
            highest = math.max(highest, last)
          }
        case Left(reason) => sink.bad(record, offset, reason)
      }
    }
    LibsvmScan(rows, highest, characters, sink.skipped)
  }

  /** Values a row, where `data.shape` says nothing. */
  def width(found: LibsvmScan, settings: Settings): Int = {
    val files = s"The LIBSVM files at '${settings(DataKeys.path)}'"
    if (found.rows == 0 && found.bad.count > 0)
      throw new ConfigurationException(
        s"$files hold no line that is a row, and ${found.bad.count} that are none. The first: ${found.bad.listed.head} Set `data.path` to other files, or " +
          "fix the settings that this speaks of."
      )
    if (found.highest == 0)
      throw new ConfigurationException(
        s"$files name no value (`index:value`), so the rows' length is not known. Set `data.shape`, or `data.path` to other files."
      )
    val rowBytes = found.highest.toLong * ValueKind.named(settings(TableKeys.heldAs)).get.bytes
    // Both factors are below 2^40.
    if (found.rows * rowBytes > MostBytes * found.characters)
      throw new ConfigurationException(
        s"$files hold ${found.rows} rows in ${found.characters} characters, and their highest index is ${found.highest}: held densely they would take ${found.rows * rowBytes} " +
          s"bytes, more than $MostBytes for each character, as if a line were damaged. Where the rows are as long as that, set data.shape=${found.highest}; otherwise " +
          "fix the line, or set `data.shape` to the rows' length."
      )
    found.highest
  }
}
