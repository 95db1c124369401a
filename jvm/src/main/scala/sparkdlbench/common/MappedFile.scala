package sparkdlbench.common

import java.io.{IOException, RandomAccessFile}
import java.nio.channels.FileChannel
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.attribute.PosixFilePermissions
import java.nio.file.{Files, LinkOption, Path, Paths}
import java.nio.{ByteBuffer, MappedByteBuffer}
import scala.jdk.CollectionConverters._
import scala.util.Try
import scala.util.control.NonFatal

/** Files that several processes map. */
private[sparkdlbench] object MappedFile {
  private val CollectMillis = 50L

  /** The file that says whose a folder is. */
  val Owner = ".owner"

  /** Where processes of one host that are no executors' own map files: in memory where it has room there. */
  def folders: Seq[Path] =
    Seq(Paths.get("/dev/shm"), Paths.get(System.getProperty("java.io.tmpdir"))).filter(Files.isWritable(_))

  /**
   * A new file of `bytes` zeros in the first of `directories` that can hold it, mode 0600, mapped. None where none can. The
   * zeros are really written: a sparse file on a full tmpfs would kill the process with SIGBUS at its first use.
   *
   * Its name tells whose it is, and what processes that were killed have left there with that prefix is removed first.
   */
  def create(directories: Seq[Path], prefix: String, bytes: Int): Option[(Path, MappedByteBuffer)] = {
    directories.foreach(removeLeft(_, prefix))
    val marked = ProcessMark.own.fold(prefix)(mark => s"$prefix${mark.print}-")
    directories.iterator.zipWithIndex
      .map { case (directory, index) =>
        attempt(directory, marked, bytes).orElse {
          // Earlier runs' mappings hold their memory until they are collected, which nothing else brings about.
          if (index == 0) { System.gc(); Thread.sleep(CollectMillis); attempt(directory, marked, bytes) }
          else None
        }
      }
      .collectFirst { case Some(made) => made }
  }

  /**
   * Zeros that lose their name as soon as they are there: other processes of this user open them by `path`, through this process'
   * descriptor, until it is closed. None where `create` gives none, or /proc does not tell.
   */
  def createNameless(directory: Path, prefix: String, bytes: Int): Option[Nameless] =
    if (ProcessMark.own.isEmpty) None
    else
      create(Seq(directory), prefix, bytes).flatMap { case (file, memory) =>
        try nameless(file, memory)
        catch { case NonFatal(_) => None }
        finally Try(Files.deleteIfExists(file)): Unit
      }

  private def nameless(file: Path, memory: MappedByteBuffer): Option[Nameless] = {
    val held = new RandomAccessFile(file.toFile, "rw")
    val found =
      try for (path <- descriptorOf(file.toRealPath()); identity <- identity(path)) yield (path, identity)
      catch { case NonFatal(_) => None }
    if (found.isEmpty) held.close()
    found.map { case (path, identity) => new Nameless(path, identity, memory, held) }
  }

  private def descriptorOf(file: Path): Option[Path] = ProcessMark.own.flatMap { mark =>
    val all = Files.list(Paths.get("/proc/self/fd"))
    try
      all.iterator.asScala
        .find(each => Try(Files.readSymbolicLink(each) == file).getOrElse(false))
        .map(each => Paths.get(s"/proc/${mark.pid}/fd/${each.getFileName}"))
    finally all.close()
  }

  /** @param path as long as it is not closed */
  final class Nameless(val path: Path, val identity: String, val memory: MappedByteBuffer, held: AutoCloseable)
      extends AutoCloseable {
    override def close(): Unit = held.close()
  }

  /** `device-inode` of what a path leads to, of which a kernel has one at a time. None where it is not there. */
  def identity(path: Path): Option[String] =
    Try(s"${Files.getAttribute(path, "unix:dev")}-${Files.getAttribute(path, "unix:ino")}").toOption

  /** Tidying up must not keep a run from starting. */
  private def removeLeft(directory: Path, prefix: String): Unit =
    try {
      val files = Files.newDirectoryStream(directory, s"$prefix*")
      try files.forEach(file => if (isLeft(file, prefix)) Try(Files.deleteIfExists(file)): Unit)
      finally files.close()
    } catch { case NonFatal(_) => () }

  /** Says in a folder whose it is; its name may have to be short. */
  def own(folder: Path): Unit =
    ProcessMark.own.foreach(mark => Files.write(folder.resolve(Owner), mark.print.getBytes(UTF_8)))

  /** Removes folders with a prefix that processes of our user which were killed had made and owned. */
  def removeLeftFolders(directory: Path, prefix: String): Unit = Try {
    val folders = Files.newDirectoryStream(directory, s"$prefix*")
    try folders.forEach(folder => if (isLeftFolder(folder)) removeWhole(folder))
    finally folders.close()
  }: Unit

  private def isLeftFolder(folder: Path): Boolean = Try {
    Files.isDirectory(folder, LinkOption.NOFOLLOW_LINKS) &&
    Files.getOwner(folder, LinkOption.NOFOLLOW_LINKS) == Files.getOwner(Paths.get("/proc/self")) &&
    ProcessMark.parse(new String(Files.readAllBytes(folder.resolve(Owner)), UTF_8)).exists(_.hasEnded)
  }.getOrElse(false)

  private def removeWhole(folder: Path): Unit = Try {
    val all = Files.walk(folder)
    try all.sorted(java.util.Comparator.reverseOrder[Path]()).forEach(each => Files.deleteIfExists(each): Unit)
    finally all.close()
  }: Unit

  /** Whether a process of our user has made it that surely runs no more. */
  private def isLeft(file: Path, prefix: String): Boolean = {
    val name = file.getFileName.toString.stripPrefix(prefix)
    ProcessMark.parse(name.take(name.lastIndexOf('-'))).exists(_.hasEnded) &&
    Files.isRegularFile(file, LinkOption.NOFOLLOW_LINKS) &&
    Try(Files.getOwner(file, LinkOption.NOFOLLOW_LINKS) == Files.getOwner(Paths.get("/proc/self"))).getOrElse(false)
  }

  private def attempt(directory: Path, prefix: String, bytes: Int): Option[(Path, MappedByteBuffer)] = try {
    val mode = PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rw-------"))
    val file = Files.createTempFile(directory, prefix, "", mode)
    try Some((file, fillAndMap(file, bytes)))
    catch { case NonFatal(error) => Files.deleteIfExists(file); throw error }
  } catch { case _: IOException | _: UnsupportedOperationException | _: SecurityException => None }

  private def fillAndMap(file: Path, bytes: Int): MappedByteBuffer = withFile(file) { channel =>
    val zeros = ByteBuffer.allocateDirect(math.min(bytes, 1 << 20))
    var left = bytes
    while (left > 0) {
      zeros.clear().limit(math.min(left, zeros.capacity))
      left -= channel.write(zeros)
    }
    channel.map(FileChannel.MapMode.READ_WRITE, 0, bytes.toLong)
  }

  def withFile[T](file: Path)(use: FileChannel => T): T = {
    val opened = new RandomAccessFile(file.toFile, "rw")
    try use(opened.getChannel)
    finally opened.close()
  }
}
