package sparkdlbench.ml

import org.apache.spark.ml.util.{DefaultParamsReadable, DefaultParamsWritable, MLReader, MLWriter}
import org.apache.spark.sql.SparkSession
import sparkdlbench.common.ConfigurationException
import sparkdlbench.results.{ModelFolder, SavedModel}

import java.nio.file.{Files, Path, Paths}
import java.util.Comparator
import scala.jdk.CollectionConverters._

/** What the models of the estimators have in common: a net that was trained. */
trait TrainedNet extends NetColumns with DefaultParamsWritable {
  private var held: Option[SavedModel] = None

  /** The trained net; a ConfigurationException where there is none yet. */
  def net: SavedModel = held.getOrElse(
    throw new ConfigurationException(
      s"This ${getClass.getSimpleName} has no trained net. fit of its estimator, or ${getClass.getSimpleName}.load(path), gives one that has."
    )
  )

  /** Puts a trained net in place of the one there is. */
  def holding(model: SavedModel): this.type = { held = Some(model); this }

  /** Values of a row. */
  def numFeatures: Int = net.input.width

  /** Writes the net alone to a local folder, as `Trainer`'s `saveModels` and Python's `Model.save` do. */
  def saveNet(folder: String): Unit = ModelFolder.write(Paths.get(folder), net)

  /** Takes the net of such a folder. */
  def loadNet(folder: String): this.type = holding(SavedModel.read(Paths.get(folder)))

  /** Parameters in `metadata` as Spark ML writes them, and the net's files as rows of Parquet files in `data`, as Python's models have them. */
  override def write: MLWriter = {
    val parameters = super.write
    new MLWriter {
      override protected def saveImpl(path: String): Unit = {
        parameters.save(path)
        NetFiles.write(sparkSession, net, s"$path/data")
      }
    }
  }
}

/** Reads what a `TrainedNet` of this language or of Python's wrote. */
trait TrainedNetReadable[T <: TrainedNet] extends DefaultParamsReadable[T] {
  override def read: MLReader[T] = {
    val parameters = super.read
    new MLReader[T] {
      override def load(path: String): T = {
        val model = parameters.load(path)
        model.holding(NetFiles.read(sparkSession, s"$path/data"))
        model
      }
    }
  }
}

/** A net's files as rows of Parquet files: any file system that Spark knows can hold them. */
private[ml] object NetFiles {
  private val PartBytes = 16 << 20

  def write(spark: SparkSession, net: SavedModel, path: String): Unit = inFolder { folder =>
    ModelFolder.write(folder, net)
    val rows = files(folder).flatMap { file =>
      val content = Files.readAllBytes(file)
      content.grouped(PartBytes).zipWithIndex.map { case (part, at) => (file.getFileName.toString, at, part) }
    }
    // A task each: rows travel within tasks, whose size Spark limits (spark.rpc.message.maxSize, 128 MiB).
    val each = spark.sparkContext.parallelize(rows, math.max(1, rows.size))
    spark.createDataFrame(each).toDF("file", "part", "content").write.parquet(path)
  }

  def read(spark: SparkSession, path: String): SavedModel = inFolder { folder =>
    spark.read.parquet(path).select("file", "part", "content").orderBy("file", "part").collect().foreach { row =>
      // A name that somebody has written; never a way out of the folder.
      val file = folder.resolve(Paths.get(row.getString(0)).getFileName.toString)
      Files.write(
        file,
        row.getAs[Array[Byte]](2),
        java.nio.file.StandardOpenOption.CREATE,
        java.nio.file.StandardOpenOption.APPEND
      )
    }
    SavedModel.read(folder)
  }

  private def files(folder: Path): List[Path] = {
    val found = Files.list(folder)
    try found.iterator.asScala.toList.sortBy(_.getFileName.toString)
    finally found.close()
  }

  private def inFolder[T](use: Path => T): T = {
    val folder = Files.createTempDirectory("sparkdl-bench-model-")
    try use(folder)
    finally {
      val found = Files.walk(folder)
      try found.sorted(Comparator.reverseOrder[Path]).forEach { path => Files.deleteIfExists(path); () }
      finally found.close()
    }
  }
}
