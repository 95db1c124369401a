package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.permission.FsPermission
import org.apache.hadoop.fs.{FSError, FileSystem, Path}
import org.apache.spark.SparkContext
import org.apache.spark.util.SerializableConfiguration
import sparkdlbench.common.{ConfigurationException, Failures, WriteFailure}
import sparkdlbench.config.{CheckpointKeys, Settings, Variant}

import java.io.IOException
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Paths
import java.security.MessageDigest
import java.util.UUID
import scala.util.Try

/** Decodes a set once, by one Spark job, into a folder of decoded rows. Driver side. */
private[data] object Materializer {

  /** The folder, which an earlier run may have filled. */
  def materialize(source: RecordSource, plan: RecordPlan, settings: Settings, sc: SparkContext): String = {
    val folder = folderOf(source, plan, settings, sc)
    if (RowsFolder.find(folder.toString, sc.hadoopConfiguration).isEmpty) {
      decode(source, plan, settings, sc, folder)
      // Nothing finds this copy again but who names it: not another session, where no key says that one will.
      if (plan.identity.isEmpty && !keeps(settings)) SessionCopies.add(sc, folder)
    }
    folder.toString
  }

  private def keeps(settings: Settings): Boolean =
    settings(RecordSource.cacheDir).nonEmpty || settings(CheckpointKeys.folder).nonEmpty

  /** The folder, where an earlier run has filled it. */
  def find(source: RecordSource, plan: RecordPlan, settings: Settings, sc: SparkContext): Option[String] =
    Some(folderOf(source, plan, settings, sc).toString).filter(RowsFolder.find(_, sc.hadoopConfiguration).isDefined)

  private def folderOf(source: RecordSource, plan: RecordPlan, settings: Settings, sc: SparkContext): Path = {
    val base = baseFolder(settings, sc)
    val identity =
      plan.identity.map(fingerprint(source, plan.layout, settings, _)).getOrElse(UUID.randomUUID().toString)
    new Path(base, s"${source.name}-$identity")
  }

  private def decode(source: Variant, plan: RecordPlan, settings: Settings, sc: SparkContext, folder: Path): Unit = {
    val start = System.nanoTime()
    val fileSystem = folder.getFileSystem(sc.hadoopConfiguration)
    val partial = new Path(folder.getParent, s".${folder.getName}-${UUID.randomUUID()}")
    try {
      makePrivate(fileSystem, folder.getParent)
      fileSystem.mkdirs(partial)
      val outcomes = run(source, plan, RecordSource.badRecords(settings), sc, partial)
      outcomes.flatMap(_.failure).headOption.foreach(reason => throw new ConfigurationException(reason))
      val skipped = Skipped.limited(outcomes.map(_.skipped), settings)
      val parts = outcomes.map(_.part)
      checkNotEmpty(parts, skipped, settings, plan)
      val seconds = (System.nanoTime() - start) / 1e9
      val manifest =
        RowsManifest(
          source.name,
          ofValues(plan.layout, settings),
          parts.filter(_.rows > 0),
          skipped,
          seconds,
          identity(plan, outcomes)
        )
      write(fileSystem, new Path(partial, RowsFolder.Manifest), manifest.toJson)
      removeOthers(fileSystem, partial, parts)
      publish(fileSystem, partial, folder)
    } catch {
      case cause @ (_: IOException | _: FSError) => // the second is Hadoop's for a local disk
        throw new ConfigurationException(
          WriteFailure.text(
            s"The folder '${folder.getParent}' of decoded rows",
            cause,
            "or set `data.cache_dir` to a folder with more room that can be written"
          ),
          cause
        )
    } finally
      // Where the folder came to be at the very moment of the rename, ours is inside it.
      Seq(partial, new Path(folder, partial.getName)).foreach(path => Try(fileSystem.delete(path, true)))
  }

  /**
   * Another run may have decoded the same meanwhile: a rename onto its folder would move ours into it, and say that all is
   * well.
   */
  private def publish(fileSystem: FileSystem, partial: Path, folder: Path): Unit = {
    val manifest = new Path(folder, RowsFolder.Manifest)
    if (!fileSystem.exists(manifest)) {
      val renamed = fileSystem.rename(partial, folder)
      if (!fileSystem.exists(manifest))
        throw new IOException(
          if (renamed) s"the folder '$folder' is there without its ${RowsFolder.Manifest}, delete it"
          else s"'$partial' cannot be renamed to '$folder'"
        )
    }
  }

  private def run(source: Variant, plan: RecordPlan, policy: BadRecords, sc: SparkContext, folder: Path) = {
    val (layout, name, shipped) =
      (plan.layout, folder.toString, new SerializableConfiguration(sc.hadoopConfiguration))
    try {
      val work = plan.work()
      Decoding.watched(sc, source.name, work.getNumPartitions) { (done, rows) =>
        work
          .mapPartitionsWithIndex { (index, works) =>
            works.map { each =>
              val outcome = PartWriter.write(name, index, each, layout, policy, shipped.value)
              rows.add(outcome.part.rows.toLong)
              done.add(1)
              outcome
            }
          }
          .collect()
          .toSeq
          .sortBy(_.index)
      }
    } catch {
      case cause: org.apache.spark.SparkException if WriteFailure.isFull(cause) =>
        throw new IOException(Failures.reason(cause), cause)
      case cause: org.apache.spark.SparkException =>
        throw new ConfigurationException(
          s"The data set (${layout.description}) cannot be decoded: ${Failures.reason(cause)}",
          cause
        )
    }
  }

  /** Where nothing else tells the rows that train from those of another time, they do. */
  private def identity(plan: RecordPlan, outcomes: Seq[PartOutcome]): String =
    if (plan.identity.isDefined && plan.ordered) ""
    else outcomes.filterNot(_.part.test).map(_.digest).foldLeft(RowsDigest.none)(_ + _).text

  /** @param skipped what was left out, as a parenthesis, or nothing */
  def noRows(description: String, skipped: String): String =
    s"The $description has no rows$skipped. Look at what fills it (DataFrame.count() is 0): a filter or a join that keeps nothing, or an empty source."

  /** Which of a file's columns are a row's values, a later run that takes the decoded rows need not say. */
  private def ofValues(layout: RecordLayout, settings: Settings): RecordLayout =
    if (layout.column.nonEmpty || layout.columns.size <= layout.width) layout
    else layout.copy(columns = TableKeys.valueColumns(layout.columns, settings))

  private def checkNotEmpty(parts: Seq[RowsPart], skipped: Skipped, settings: Settings, plan: RecordPlan): Unit = {
    val rows = parts.map(_.rows.toLong).sum
    val leftOut =
      if (skipped.count > 0) s" (${skipped.count} bad records were left out, the first: ${skipped.listed.head})" else ""
    if (rows == 0 && settings(DataKeys.path).isEmpty)
      throw new ConfigurationException(noRows(plan.layout.description, leftOut))
    if (rows == 0)
      throw new ConfigurationException(
        s"The data set at '${settings(DataKeys.path)}' has no rows" +
          (if (skipped.count > 0) s" (${skipped.count} bad records were left out, the first: ${skipped.listed.head})."
           else ".") +
          " Set `data.path` to files that hold some."
      )
    if ((plan.testsNamed || parts.exists(_.test)) && !parts.exists(part => part.test && part.rows > 0)) {
      val path = settings(FileSource.testPath)
      val (where, remedy) =
        if (path.nonEmpty) (s", at '$path',", "Set `data.test_path` to files that hold some")
        else ("", "Give a DataFrame (`data.test_table`, or the rows of validationIndicatorCol) that holds some")
      throw new ConfigurationException(
        s"The rows to test on$where are none$leftOut. $remedy, or leave it out: then a part of the training rows tests."
      )
    }
    if (rows > Int.MaxValue)
      throw new ConfigurationException(
        s"The data set at '${settings(DataKeys.path)}' has $rows rows; at most ${Int.MaxValue} are supported."
      )
  }

  /** Attempts that Spark did not count (stragglers, lost executors) leave files. */
  private def removeOthers(fileSystem: FileSystem, folder: Path, parts: Seq[RowsPart]): Unit = {
    val wanted = parts.filter(_.rows > 0).map(_.file).toSet + RowsFolder.Manifest
    fileSystem
      .listStatus(folder)
      .map(_.getPath)
      .filterNot(path => wanted(path.getName))
      .foreach(path => fileSystem.delete(path, false))
  }

  private def write(fileSystem: FileSystem, path: Path, text: String): Unit = {
    val stream = fileSystem.create(path, true)
    try stream.write(text.getBytes(UTF_8))
    finally stream.close()
  }

  /** Where decoded rows go. */
  private def baseFolder(settings: Settings, sc: SparkContext): Path = {
    val named = settings(RecordSource.cacheDir)
    if (named.nonEmpty) new Path(DataFiles.qualify(RecordSource.cacheDir.name, named, sc.hadoopConfiguration))
    else defaultFolder(sc.master, sc.hadoopConfiguration)
  }

  private def defaultFolder(master: String, hadoop: Configuration): Path =
    if (master.startsWith("local")) {
      val cache = sys.env.get("XDG_CACHE_HOME").filter(_.nonEmpty).getOrElse(s"${sys.props("user.home")}/.cache")
      new Path(Paths.get(cache, "sparkdl-bench", "data").toUri)
    } else {
      val default = FileSystem.get(hadoop)
      if (default.getScheme == "file")
        throw new ConfigurationException(
          "Configuration key 'data.cache_dir' is not set. This data source decodes its rows once into a folder that driver and executors all " +
            "see, and with this master the hosts' local disks are not one (Hadoop's default file system is file:). Set it to a folder of a " +
            "shared file system, such as hdfs://…/sparkdl-bench."
        )
      new Path(default.getHomeDirectory, ".sparkdl-bench/data")
    }

  private def makePrivate(fileSystem: FileSystem, folder: Path): Unit =
    if (!fileSystem.exists(folder)) {
      fileSystem.mkdirs(folder, new FsPermission("700"))
      ()
    }

  /** The same for the same files, settings and version of the format. */
  private def fingerprint(
      source: RecordSource,
      layout: RecordLayout,
      settings: Settings,
      files: Seq[String]
  ): String = {
    val keys = (source.ownKeys ++ RecordSource.decodeKeys).map(_.name).distinct.sorted
    val lines = Seq(s"${RowsFolder.Schema} ${source.name} $layout") ++
      keys.map(key => s"$key=${settings.entries.getOrElse(key, "")}") ++ files
    val digest = MessageDigest.getInstance("SHA-256").digest(lines.mkString("\n").getBytes(UTF_8))
    digest.take(12).map(byte => f"${byte & 0xff}%02x").mkString
  }
}
