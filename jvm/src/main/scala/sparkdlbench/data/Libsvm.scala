package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import org.apache.spark.SparkContext
import org.apache.spark.util.SerializableConfiguration
import sparkdlbench.ConfigurationException
import sparkdlbench.config.{Key, Settings}

/**
 * LIBSVM text: `label index:value index:value …` a line, indices from 1 on, ascending; what is not named is 0. Rows are held densely. The
 * rows' length is that of `data.shape`, or else the highest index of all files, which takes a job of its own to find.
 */
final class Libsvm extends DataSource with FileSource {
  def name = "libsvm"
  def doc = "LIBSVM text, held densely, from any Hadoop file system, decoded in parts"
  def ownKeys: Seq[Key[_]] =
    FileSource.path ++ Seq(TableKeys.labelNames, TableKeys.heldAs, DataKeys.shape, FileSource.splitBytes)

  def splits(settings: Settings, hadoop: Configuration): Seq[Split] =
    FileSource.files(settings, hadoop).flatMap { case (file, test) =>
      Split.ranges(file, test, settings(FileSource.splitBytes))
    }

  override def plan(settings: Settings, spark: SparkContext): RecordPlan =
    if (settings(DataKeys.shape).nonEmpty) super.plan(settings, spark)
    else super.plan(settings.updated(DataKeys.shape, width(settings, spark).toString), spark)

  def layout(splits: Seq[Split], settings: Settings, hadoop: Configuration): RecordLayout = RecordLayout(
    settings(DataKeys.shape),
    ValueKind.named(settings(TableKeys.heldAs)).get,
    TableKeys.classes(settings),
    s"LIBSVM text from ${settings(DataKeys.path)}",
    settings(TableKeys.labelNames)
  )

  def decode(split: Split, settings: Settings, hadoop: Configuration, sink: RecordSink): Unit = {
    val values = new Array[Float](sink.layout.width)
    TextLines.foreach(split, hadoop, sink) { (line, record, offset) =>
      LibsvmLine.parse(line, values) match {
        case Right("") => () // a comment
        case Right(text) =>
          sink.layout.label(text) match {
            case Some(label) => sink.floats(values, label, record, offset)
            case None => sink.bad(record, offset, s"the label is '$text'; ${sink.layout.labelsSay}")
          }
        case Left(reason) => sink.bad(record, offset, reason)
      }
    }
  }

  private def width(settings: Settings, sc: SparkContext): Int = {
    val parts = splits(settings, sc.hadoopConfiguration)
    val hadoop = new SerializableConfiguration(sc.hadoopConfiguration)
    sc.setJobDescription("sparkdl-bench: the highest index of the LIBSVM files")
    val highest =
      try sc.parallelize(parts, parts.size).map(Libsvm.highest(_, hadoop.value)).fold(0)((a, b) => math.max(a, b))
      finally sc.setJobDescription(null)
    if (highest == 0)
      throw new ConfigurationException(
        s"The LIBSVM files at '${settings(DataKeys.path)}' name no value (`index:value`), so the rows' length is not known. Set `data.shape`, or `data.path` " +
          "to other files."
      )
    highest
  }
}

private object Libsvm {

  /** Higher indices are taken for damage, here; `data.shape` allows longer rows. */
  val MostAutomatic: Int = 1 << 20

  /** The highest index of a split; bad lines are found again, and told, when they are decoded. */
  def highest(split: Split, hadoop: Configuration): Int = {
    var found = 0
    val sink = new RecordSink(RecordLayout(Seq(1), ValueKind.Float32, 2, ""), skip = true, Int.MaxValue) {
      protected def accept(row: Array[Byte], label: Int): Unit = ()
    }
    sink.file = split.file.path
    TextLines.foreach(split, hadoop, sink)((line, _, _) =>
      LibsvmLine.lastIndex(line).filter(_ <= MostAutomatic).foreach(index => found = math.max(found, index))
    )
    found
  }
}
