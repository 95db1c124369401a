package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import org.apache.spark.SparkContext
import org.apache.spark.rdd.RDD
import org.apache.spark.util.SerializableConfiguration
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Key, RunKeys, Settings, Variants}

/**
 * How a set is decoded.
 *
 * @param identity
 *   whatever the decoded rows depend on besides the settings: files with their lengths and times. None: nothing tells whether
 *   the rows are the same another time, so they are decoded anew for each run
 * @param ordered
 *   whether files and settings tell the order of the rows, too: not where the session cuts the files, as it does for frames
 * @param work
 *   one element a partition, in the order of the rows; evaluated lazily, by tasks
 * @param testsNamed
 *   whether rows to test on are named, however few they are: a frame that filters keep nothing of may have no partition
 */
private[data] final case class RecordPlan(
    layout: RecordLayout,
    identity: Option[Seq[String]],
    ordered: Boolean,
    work: () => RDD[DecodeWork],
    testsNamed: Boolean = false
)

/**
 * A source whose rows are decoded once, by a Spark job over all executors, into a folder that all of them see (RowsFolder);
 * each executor then reads all rows from there. So that a run costs one pass over the set however many executors there
 * are, and rows keep their ids.
 */
private[data] trait RecordSource extends DataSource {

  /** The keys that decide what is decoded, besides those of all such sources. */
  def ownKeys: Seq[Key[_]]

  /** Checks without a job what can be checked so, then says how to decode. Driver. */
  def plan(settings: Settings, spark: SparkContext): RecordPlan

  final override def keys: Seq[Key[_]] = ownKeys ++ RecordSource.decodeKeys ++ RecordSource.readKeys

  /** Settings without a folder of decoded rows keep their paths; those with one need none. */
  final override def qualified(settings: Settings, hadoop: Configuration): Settings = {
    val named = settings(RecordSource.decodedDir)
    if (named.isEmpty) withPaths(settings, hadoop)
    else settings.updated(RecordSource.decodedDir, DataFiles.qualify(RecordSource.decodedDir.name, named, hadoop))
  }

  /** The settings with complete paths of what is to be decoded. */
  protected def withPaths(settings: Settings, hadoop: Configuration): Settings = settings

  override def prepare(settings: Settings, spark: SparkContext): Settings = {
    val named = settings(RecordSource.decodedDir)
    val folder = if (named.nonEmpty) named else Materializer.materialize(this, plan(settings, spark), settings, spark)
    ShardedChange.prepare(folder, settings, spark)
    settings.updated(RecordSource.decodedDir, folder)
  }

  override def preview(settings: Settings, spark: SparkContext): DataPreview =
    if (settings(RecordSource.decodedDir).nonEmpty) DataPreview(settings, None)
    else {
      val planned = plan(settings, spark)
      Materializer.find(this, planned, settings, spark) match {
        case Some(folder) => DataPreview(settings.updated(RecordSource.decodedDir, folder), None)
        case None =>
          val layout = planned.layout
          val least = DataFacts(RunKeys.globalBatch(settings), 1, layout.shape, layout.classes, layout.description, 0)
          DataPreview(settings, Some(Pipeline.shaped(least, settings)))
      }
    }

  def inspect(settings: Settings, hadoop: Configuration): DataFacts =
    RowsFolder.require(settings(RecordSource.decodedDir), hadoop).facts(settings)

  def open(settings: Settings, hadoop: Configuration): DataSets =
    RowsFolder.require(settings(RecordSource.decodedDir), hadoop).open(settings)
}

private[data] object RecordSource {
  val cacheDir: Key[String] = Key.text(
    "data.cache_dir",
    "",
    "Folder for decoded rows that driver and executors all see; a set whose files and settings are the same is not decoded " +
      "again. Default: the user's cache folder with a local master, else .sparkdl-bench in the user's folder on Hadoop's default file system"
  )
  val decodedDir: Key[String] =
    Key.text(
      "data.decoded_dir",
      "",
      "Folder of this set's decoded rows; set by the run, or by hand to use those of another run"
    )
  val decodeKeys: Seq[Key[_]] = Seq(DataKeys.classes, DataKeys.onError, Skipped.most)
  val readKeys: Seq[Key[_]] =
    Seq(cacheDir, decodedDir, RowsFolder.testEvery, DataKeys.scale) ++ Placement.keys ++ DataKeys.pipeline

  def badRecords(settings: Settings): BadRecords =
    BadRecords(settings(DataKeys.onError) == "skip", settings(Skipped.most))
}

/**
 * Some bytes of some files, decoded by one task.
 *
 * @param unfit
 *   why nothing of it is decoded: it stands for a whole file that is left out, as one bad record
 */
private[data] final case class Split(
    files: Seq[DataFile],
    from: Long,
    until: Long,
    test: Boolean,
    unfit: Option[String] = None
) extends Serializable {
  def file: DataFile = files.head
}

private[data] object Split {
  def whole(file: DataFile, test: Boolean): Split = Split(Seq(file), 0, file.bytes, test)

  /** A file cut into ranges of about equal length; a compressed one stays whole. */
  def ranges(file: DataFile, test: Boolean, bytes: Long): Seq[Split] =
    if (DataFiles.isCompressed(file) || file.bytes == 0) Seq(whole(file, test))
    else {
      val count = math.max(1L, (file.bytes + bytes - 1) / bytes)
      (0L until count).map(i => Split(Seq(file), file.bytes * i / count, file.bytes * (i + 1) / count, test))
    }
}

/** A RecordSource over files. */
private[data] trait FileSource extends RecordSource {

  /** The parts to decode, in the order of the rows. Driver; throws a ConfigurationException where there is none. */
  def splits(settings: Settings, hadoop: Configuration): Seq[Split]

  def layout(splits: Seq[Split], settings: Settings, hadoop: Configuration): RecordLayout

  /**
   * Why a file as a whole is none of the set, although each of its records may look like one; None where there is no reason. Driver, without a
   * job.
   */
  def unfit(file: DataFile, layout: RecordLayout, settings: Settings, hadoop: Configuration): Option[String] = None

  /** Hands the split's records to the sink. Task. */
  def decode(split: Split, settings: Settings, hadoop: Configuration, sink: RecordSink): Unit

  override protected def withPaths(settings: Settings, hadoop: Configuration): Settings = {
    val path = settings.updated(DataKeys.path, DataFiles.qualify(DataKeys.path.name, settings(DataKeys.path), hadoop))
    if (!keys.contains(FileSource.testPath) || settings(FileSource.testPath).isEmpty) path
    else
      path.updated(
        FileSource.testPath,
        DataFiles.qualify(FileSource.testPath.name, settings(FileSource.testPath), hadoop)
      )
  }

  def plan(settings: Settings, spark: SparkContext): RecordPlan = {
    val parts = splits(settings, spark.hadoopConfiguration)
    if (parts.isEmpty)
      throw new ConfigurationException(s"There is nothing to read at '${settings(DataKeys.path)}' (`data.path`).")
    val found = layout(parts, settings, spark.hadoopConfiguration)
    val fitting = withoutUnfit(parts, found, settings, spark.hadoopConfiguration)
    val shipped = new SerializableConfiguration(spark.hadoopConfiguration)
    val source = name
    def work(): RDD[DecodeWork] = spark.parallelize(fitting, fitting.size).map { split =>
      new DecodeWork(split.test, sink => FileSource.decode(source, split, settings, shipped.value, sink))
    }
    val files = fitting.map { split =>
      s"${split.from} ${split.until} ${split.test} ${split.files.mkString(" ")}${split.unfit.fold("")(" left out: " + _)}"
    }
    RecordPlan(found, Some(files), ordered = true, () => work())
  }

  /** Of a file that is left out whole the first part stays, to be counted; without it a set might seem to name no test rows. */
  private def withoutUnfit(
      parts: Seq[Split],
      layout: RecordLayout,
      settings: Settings,
      hadoop: Configuration
  ): Seq[Split] = {
    val reasons = parts.map(_.file).distinct.flatMap(file => unfit(file, layout, settings, hadoop).map(file -> _))
    reasons.headOption.filterNot(_ => RecordSource.badRecords(settings).skip).foreach { case (file, reason) =>
      throw new ConfigurationException(
        s"File '${file.path}' is none of this data set: $reason. Fix the file, or leave such files out with data.on_error=skip (they are " +
          "counted and listed in run.json)."
      )
    }
    val byFile = reasons.toMap
    parts
      .filter(split => split.from == 0 || !byFile.contains(split.file))
      .map(split => split.copy(unfit = byFile.get(split.file)))
  }
}

private[data] object FileSource {
  val testPath: Key[String] =
    Key.text("data.test_path", "", "The rows to test on; empty: one of every data.test_every rows of data.path tests")
  val splitBytes: Key[Long] =
    Key.long("data.split_bytes", "33554432", 1024, "Bytes of a file that one task decodes")
  val path: Seq[Key[_]] = Seq(DataKeys.path, testPath)

  /** The files of `data.path`, then those of `data.test_path`, each with whether it tests. */
  def files(settings: Settings, hadoop: Configuration): Seq[(DataFile, Boolean)] = {
    val train = DataFiles.list(DataKeys.path.name, settings(DataKeys.path), hadoop).map(_ -> false)
    if (settings(testPath).isEmpty) train
    else train ++ DataFiles.list(testPath.name, settings(testPath), hadoop).map(_ -> true)
  }

  private def decode(source: String, split: Split, settings: Settings, hadoop: Configuration, sink: RecordSink): Unit =
    Variants.find[DataSource]("data source", source) match {
      case files: FileSource =>
        sink.file = split.file.path
        sink.partStart = split.from
        split.unfit match {
          case Some(reason) => sink.bad(0, 0, reason)
          case None => files.decode(split, settings, hadoop, sink)
        }
      case other => throw new IllegalStateException(s"${other.name} reads no files")
    }
}
