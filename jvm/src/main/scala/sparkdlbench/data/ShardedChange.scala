package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.spark.SparkContext
import org.apache.spark.util.SerializableConfiguration
import sparkdlbench.common.{ConfigurationException, Json, WriteFailure}
import sparkdlbench.config.Settings
import sparkdlbench.loss.Target

import java.io.{FileNotFoundException, IOException}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.{FloatBuffer, LongBuffer}
import java.util.UUID
import scala.jdk.CollectionConverters._

/**
 * What normalises the rows of a sharded set, which no executor sees whole: found once by a Spark job over its training rows, and kept in a
 * file beside them.
 */
private[data] object ShardedChange {

  /** Finds it, unless it is there or not wanted. Driver. */
  def prepare(folder: String, settings: Settings, sc: SparkContext): Unit =
    if (settings(Normalization.mode) != "none") {
      val rows = RowsFolder.require(folder, sc.hadoopConfiguration)
      if (rows.isSharded(settings) && read(folder, settings, sc.hadoopConfiguration).isEmpty)
        write(folder, settings, sc.hadoopConfiguration, find(folder, rows, settings, sc))
    }

  /** None where none is wanted. */
  def of(folder: String, settings: Settings, hadoop: Configuration): Option[Normalization.Change] =
    if (settings(Normalization.mode) == "none") None
    else
      Some(
        read(folder, settings, hadoop).getOrElse(
          throw new ConfigurationException(
            s"The folder '$folder' of decoded rows lacks ${fileOf(settings)}, by which the rows of a sharded set are normalised. A run makes it " +
              "before it trains; was it deleted meanwhile? Run again."
          )
        )
      )

  private def find(folder: String, rows: RowsFolder, settings: Settings, sc: SparkContext): Normalization.Change = {
    val (layout, count) = (rows.manifest.layout, rows.sharded(settings).train.rows)
    val tasks = math.max(1, math.min(rows.manifest.parts.size, count))
    val shipped = new SerializableConfiguration(sc.hadoopConfiguration)
    sc.setJobDescription(s"sparkdl-bench: means of ${rows.manifest.source}")
    try {
      val parts = sc
        .parallelize((0 until tasks).map(i => (part(i, tasks, count), part(i + 1, tasks, count))), tasks)
        .map { case (from, until) => moments(folder, settings, shipped.value, from, until) }
        .collect()
      Normalization.change(settings(Normalization.mode), parts.foldLeft(Moments.none)(_ merge _), layout.shape)
    } finally sc.setJobDescription(null)
  }

  private def part(index: Int, of: Int, rows: Int): Int = (rows.toLong * index / of).toInt

  private def moments(folder: String, settings: Settings, hadoop: Configuration, from: Int, until: Int): Moments = {
    val train = RowsFolder.require(folder, hadoop).sharded(settings).train
    val (running, row) = (new RunningMoments(train.width), new Array[Float](train.width))
    val (whole, label) = (FloatBuffer.wrap(row), LongBuffer.allocate(train.labels))
    val some = math.max(1, ChunkBytes / (train.width * 4))
    for (first <- from until until by some) {
      val chunk = train.load(first, math.min(until, first + some))
      for (at <- 0 until chunk.rows) {
        chunk.read(at, 0, whole, label)
        running.add(row, 0, Target.weight(label.get(0)).toDouble) // labels are not counted here
      }
    }
    running.result
  }

  private def fileOf(settings: Settings): String =
    s"change-${settings(Normalization.mode)}-${settings(DataKeys.share)}-${settings(DataKeys.scale).fold("auto")(_.toString)}-${settings(RowsFolder.testEvery)}.json"

  private def read(folder: String, settings: Settings, hadoop: Configuration): Option[Normalization.Change] = {
    val path = new Path(folder, fileOf(settings))
    try {
      val stream = path.getFileSystem(hadoop).open(path)
      val text =
        try new String(stream.readNBytes(MostBytes), UTF_8)
        finally stream.close()
      val json = Json.read(text)
      def values(name: String) = json.path(name).elements.asScala.map(_.asDouble.toFloat).toArray
      val change = Normalization.Change(values("subtract"), values("factor"))
      if (change.subtract.isEmpty || change.subtract.length != change.factor.length)
        throw new IOException("it does not hold as many factors as means")
      Some(change)
    } catch {
      case _: FileNotFoundException => None
      case cause @ (_: IOException | _: IllegalArgumentException) =>
        throw new ConfigurationException(
          s"File '$path' of the decoded rows cannot be read: ${cause.getMessage}. Delete it, and the next run makes it again.",
          cause
        )
    }
  }

  private def write(folder: String, settings: Settings, hadoop: Configuration, change: Normalization.Change): Unit = {
    val path = new Path(folder, fileOf(settings))
    val fileSystem = path.getFileSystem(hadoop)
    val partial = new Path(folder, s".${path.getName}-${UUID.randomUUID()}")
    val text = Json.text(Json.fields("subtract" -> change.subtract.toSeq, "factor" -> change.factor.toSeq))
    try {
      val stream = fileSystem.create(partial, true)
      try stream.write(text.getBytes(UTF_8))
      finally stream.close()
      // Where another run was quicker its file is the same.
      if (!fileSystem.rename(partial, path) && !fileSystem.exists(path))
        throw new IOException(s"'$partial' cannot be renamed to '$path'")
    } catch {
      case cause: IOException =>
        throw new ConfigurationException(
          WriteFailure.text(s"File '$path' of the decoded rows", cause, "or set `data.normalize` to none"),
          cause
        )
    } finally {
      val _ = fileSystem.delete(partial, false)
    }
  }

  private val ChunkBytes = 4 << 20
  private val MostBytes = 256 << 20
}
