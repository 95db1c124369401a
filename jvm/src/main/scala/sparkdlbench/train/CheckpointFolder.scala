package sparkdlbench.train

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSError, FileAlreadyExistsException, FileSystem, LocalFileSystem, Path, StreamCapabilities}

import java.io.{FileNotFoundException, IOException, InputStream, OutputStream}
import java.nio.channels.FileChannel
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Paths, StandardOpenOption}
import scala.util.Try

/**
 * A folder of any Hadoop file system, for files that have to be there after a crash. What is written is on the disk when the call returns, as far as
 * the file system can promise that: `fsync` and a synced folder on a local disk, `hsync` on HDFS; an object store shows an object only once it is whole.
 */
private[sparkdlbench] final class CheckpointFolder(val root: Path, hadoop: Configuration) {

  /** Hadoop's local file system with checksums of its own cannot sync. Manifests have better ones. */
  private lazy val files: FileSystem = root.getFileSystem(hadoop) match {
    case local: LocalFileSystem => local.getRawFileSystem
    case other => other
  }

  /** What is in a folder, with its length; nothing when it is not there, for another rank may remove it at any moment. */
  def entries(folder: Path): Map[String, Long] =
    try files.listStatus(folder).map(each => each.getPath.getName -> each.getLen).toMap
    catch {
      case _: IOException if !files.exists(folder) => Map.empty
    } // a local file system then says that it may not read it

  def names(folder: Path): Set[String] = entries(folder).keySet

  def open(path: Path): InputStream = files.open(path)

  /** The text of a small file; None where it is not there. */
  def text(path: Path): Option[String] =
    try {
      val stream = files.open(path)
      try Some(new String(stream.readNBytes(CheckpointFolder.MostTextBytes), UTF_8))
      finally stream.close()
    } catch { case _: FileNotFoundException => None }

  /** Writes a file; none is left where that fails. */
  def write[T](path: Path)(content: OutputStream => T): T = {
    val out = files.create(path, true)
    var whole = false
    try {
      val told = content(out)
      if (out.hasCapability(StreamCapabilities.HSYNC)) out.hsync()
      out.close()
      whole = true
      told
    } catch {
      case cause: FSError => throw new IOException(cause.getCause) // what a local disk refuses is an Error
    } finally
      if (!whole) {
        Try(out.close()): Unit
        Try(files.delete(path, false)): Unit
      }
  }

  /**
   * Makes a small file appear whole. Where another is there already, that one stays on HDFS and object stores, and this one takes its place on a local
   * disk: either way one of them is there at every moment.
   *
   * @param beside
   *   a name that nobody else uses at the same time
   */
  def publish(path: Path, text: String, beside: String): Unit = {
    val partial = new Path(path.getParent, s".$beside.partial")
    write(partial)(_.write(text.getBytes(UTF_8)))
    try
      if (!renamed(partial, path) && !files.exists(path)) throw new IOException(s"cannot rename $partial to $path")
    finally { val _ = Try(if (files.exists(partial)) files.delete(partial, false)) }
    syncFolder(path.getParent)
  }

  /** Gives a whole file the name by which others find it; an IOException where another has that name. */
  def rename(from: Path, to: Path): Unit = {
    if (files.exists(to) || !renamed(from, to)) throw new IOException(s"cannot rename $from to $to")
    syncFolder(to.getParent)
  }

  private def renamed(from: Path, to: Path): Boolean =
    try files.rename(from, to)
    catch { case _: FileAlreadyExistsException => false }

  /** Makes a small file unless there is one; of several who try at once, one has made it (not on S3 before conditional writes). */
  def createNew(path: Path, text: String): Boolean = {
    val bytes = text.getBytes(UTF_8)
    try {
      if (isLocal) {
        files.mkdirs(path.getParent)
        val channel = FileChannel.open(local(path), StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)
        try { channel.write(java.nio.ByteBuffer.wrap(bytes)); channel.force(true) }
        finally channel.close()
      } else {
        val out = files.create(path, false)
        try { out.write(bytes); if (out.hasCapability(StreamCapabilities.HSYNC)) out.hsync() }
        finally out.close()
      }
      syncFolder(path.getParent)
      true
    } catch {
      case _: java.nio.file.FileAlreadyExistsException => false
      case _: FileAlreadyExistsException => false
      case cause: IOException if files.exists(path) && cause.getMessage.contains("lready exists") => false
    }
  }

  def delete(path: Path, recursive: Boolean): Unit = { val _ = files.delete(path, recursive) }

  private def isLocal: Boolean = files.getUri.getScheme == "file"
  private def local(path: Path): java.nio.file.Path = Paths.get(files.makeQualified(path).toUri.getPath)

  /** So that a name is there after a crash as well. */
  private def syncFolder(folder: Path): Unit = if (isLocal && Files.isDirectory(local(folder))) {
    val channel = FileChannel.open(local(folder), StandardOpenOption.READ)
    try channel.force(true)
    finally channel.close()
  }
}

private[train] object CheckpointFolder { private val MostTextBytes = 64 << 20 }
