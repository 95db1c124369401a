package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, Path}
import org.tukaani.xz.XZInputStream
import sparkdlbench.common.{ConfigurationException, Facts}

import java.io.{BufferedInputStream, FileNotFoundException, IOException, InputStream}
import java.util.zip.GZIPInputStream
import scala.util.control.NonFatal

/** A file of a data set. @param modified milliseconds since 1970 */
private[data] final case class DataFile(path: String, bytes: Long, modified: Long) extends Serializable {
  def name: String = new Path(path).getName
  def parent: String = new Path(path).getParent.getName
}

/** Finds and opens the files of data sets, on any file system that Hadoop knows. */
private[data] object DataFiles {
  private val StreamBytes = 1 << 16
  private val XzMemoryKiB = 256 << 10
  private val MostNames = 8

  /**
   * The path with its scheme. Globs stay globs.
   *
   * @param key
   *   the configuration key that holds `text`, for error messages
   */
  def qualify(key: String, text: String, hadoop: Configuration): String = {
    if (text.trim.isEmpty)
      throw new ConfigurationException(
        s"Configuration key '$key' is not set. Set it to a file, a folder or a pattern (*, {a,b}) with --set $key=PATH: a path, or a URI of " +
          "any file system that Hadoop knows."
      )
    try {
      val path = new Path(text.trim)
      path.getFileSystem(hadoop).makeQualified(path).toString
    } catch {
      case NonFatal(cause) =>
        throw new ConfigurationException(
          s"Configuration key '$key' has the value '$text', which names no usable file system (${cause.getMessage}). Valid: a path, " +
            "or a URI whose scheme Hadoop knows here (file:, hdfs:, …).",
          cause
        )
    }
  }

  /**
   * The files that a qualified path stands for: itself, those in a folder (without hidden ones, sorted by name), or those that
   * match a pattern; never empty.
   */
  def list(key: String, qualified: String, hadoop: Configuration): Seq[DataFile] = {
    val path = new Path(qualified)
    val found =
      try {
        val fileSystem = path.getFileSystem(hadoop)
        val matching = Option(fileSystem.globStatus(path)).fold(Seq.empty[FileStatus])(_.toSeq)
        matching.flatMap(status => if (status.isDirectory) fileSystem.listStatus(status.getPath).toSeq else Seq(status))
      } catch {
        case cause: IOException =>
          throw new ConfigurationException(
            s"'$qualified' (`$key`) cannot be read on host ${Facts.hostName}: ${cause.getMessage}. Check its name and your permissions.",
            cause
          )
      }
    val files = found.filter(status => status.isFile && !isHidden(status.getPath)).map(fileOf).sortBy(_.path)
    if (files.isEmpty)
      throw new ConfigurationException(
        s"There is no file at '$qualified' (`$key`) on host ${Facts.hostName}. Set `$key` to a file, a folder that holds files, or a pattern; " +
          "driver and executors must all see it under the same name (write file:/… for local files when Hadoop's default file " +
          "system is another)."
      )
    files
  }

  /** The folders in a folder, by name. */
  def folders(qualified: String, hadoop: Configuration): Seq[String] = {
    val path = new Path(qualified)
    try
      path
        .getFileSystem(hadoop)
        .listStatus(path)
        .toSeq
        .filter(status => status.isDirectory && !isHidden(status.getPath))
        .map(_.getPath.toString)
        .sorted
    catch {
      case cause: FileNotFoundException =>
        throw new ConfigurationException(
          s"The folder '$qualified' does not exist on host ${Facts.hostName}. Driver and executors must all see the data under the same name.",
          cause
        )
    }
  }

  /** The files of a folder, sorted by name; there may be none. */
  def listOrNone(folder: String, hadoop: Configuration): Seq[DataFile] = {
    val path = new Path(folder)
    val statuses = path.getFileSystem(hadoop).listStatus(path).toSeq
    statuses.filter(status => status.isFile && !isHidden(status.getPath)).map(fileOf).sortBy(_.path)
  }

  /** One of these names in a folder, with .gz, .xz or neither; None where there is none of them. */
  def find(files: Seq[DataFile], name: String): Option[DataFile] =
    Seq(name, name + ".gz", name + ".xz").flatMap(wanted => files.find(_.name == wanted)).headOption

  /** Names for an error message. */
  def some(files: Seq[DataFile]): String = files.map(_.name).take(MostNames).mkString(", ")

  /** Opens a file and undoes gzip or xz, which are told by the content. */
  def open(file: DataFile, hadoop: Configuration): InputStream = {
    val path = new Path(file.path)
    val stream = new BufferedInputStream(path.getFileSystem(hadoop).open(path, StreamBytes), StreamBytes)
    try {
      stream.mark(XzMagic.length)
      val start = stream.readNBytes(XzMagic.length)
      stream.reset()
      if (start.startsWith(GzipMagic)) new GZIPInputStream(stream, StreamBytes)
      // A damaged header may ask for gigabytes of dictionary.
      else if (start.sameElements(XzMagic)) new XZInputStream(stream, XzMemoryKiB)
      else stream
    } catch { case cause: Throwable => stream.close(); throw cause }
  }

  /** Whether a file of this name must be read from its start. */
  def isCompressed(file: DataFile): Boolean = Seq(".gz", ".xz").exists(file.path.endsWith)

  def fileOf(status: FileStatus): DataFile =
    DataFile(status.getPath.toString, status.getLen, status.getModificationTime)

  private val GzipMagic = Array(0x1f, 0x8b).map(_.toByte)
  private val XzMagic = Array(0xfd, '7', 'z', 'X', 'Z', 0).map(_.toByte)

  private def isHidden(path: Path): Boolean = path.getName.startsWith("_") || path.getName.startsWith(".")
}
