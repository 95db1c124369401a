package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.SparkContext
import org.apache.spark.sql.DataFrame
import sparkdlbench.config.{Key, Settings}

/**
 * Parquet files, read by Spark's own reader. Rows keep the order in which they were decoded first. That depends on how the session cuts and
 * packs the files (its parallelism, `spark.sql.files.maxPartitionBytes`): decoded anew by another session the same files may give another
 * order, so what was decoded has a digest, as a table's rows have.
 */
final class Parquet extends DataSource with RecordSource {
  def name = "parquet"
  def doc = "Parquet files: numeric columns, or one of arrays, vectors, images or bytes, from any Hadoop file system"
  override def givesNumbers: Boolean = true
  def ownKeys: Seq[Key[_]] = FileSource.path ++ FrameRows.keys

  override protected def withPaths(settings: Settings, hadoop: Configuration): Settings =
    Seq(DataKeys.path, FileSource.testPath).foldLeft(settings) { (found, key) =>
      if (key == FileSource.testPath && found(key).isEmpty) found
      else found.updated(key, DataFiles.qualify(key.name, found(key), hadoop))
    }

  def plan(settings: Settings, spark: SparkContext): RecordPlan = {
    val session = FrameRows.session()
    def frame(path: String): DataFrame = FrameRows.reading(s"The Parquet files at '$path'")(session.read.parquet(path))
    val (train, test) =
      (frame(settings(DataKeys.path)), Some(settings(FileSource.testPath)).filter(_.nonEmpty).map(frame))
    val files = (train +: test.toSeq).map(
      _.inputFiles.sorted
        .map { file =>
          val path = new Path(new java.net.URI(file))
          DataFiles.fileOf(path.getFileSystem(spark.hadoopConfiguration).getFileStatus(path)).toString
        }
        .mkString(" ")
    )
    FrameRows.plan(
      train,
      test,
      Some(files),
      s"Parquet from ${settings(DataKeys.path)}",
      fromFiles = true,
      settings
    )
  }
}
