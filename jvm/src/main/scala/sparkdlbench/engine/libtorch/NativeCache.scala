package sparkdlbench.engine.libtorch

import java.io.IOException
import java.nio.channels.{FileChannel, FileLock, OverlappingFileLockException}
import java.nio.file.attribute.PosixFilePermissions
import java.nio.file.{Files, Path, Paths, StandardCopyOption, StandardOpenOption}
import scala.jdk.CollectionConverters._
import sparkdlbench.common.ConfigurationException

/**
 * The folder that native libraries are unpacked into. Several JVMs may share one, from empty on: JavaCPP's own lock does not
 * keep a JVM from mapping a library that another is still writing (seen: SIGBUS in the dynamic linker), so whoever may have
 * to unpack loads under an exclusive lock of ours, and whoever finds all files complete loads under a shared one.
 */
private[sparkdlbench] object NativeCache {
  private val Property = "org.bytedeco.javacpp.cachedir"
  private val TimeoutMillis = 300000L
  private val PollMillis = 20L

  /**
   * Makes the folder where it is missing, checks it, and tells JavaCPP. Call before any JavaCPP class is used.
   *
   * Each BLAS has a folder of its own: JavaCPP makes libtorch find the one that it loads by links between the unpacked files,
   * and JVMs of two BLAS that start at the same time would turn each other's.
   *
   * @param configured
   *   the key `engine.cache`; empty for the default
   */
  def prepare(configured: String, blas: String): Path = {
    val whole = Paths.get(choose(configured)).toAbsolutePath
    check(whole)
    val folder = whole.resolve(blas)
    check(folder)
    System.setProperty(Property, folder.toString)
    folder
  }

  /**
   * Runs `load`, which unpacks and maps libraries, so that no other JVM disturbs it.
   *
   * @param fingerprint
   *   of the jars; the same means the same files
   */
  def loading[T](folder: Path, fingerprint: String)(load: => T): T = {
    val manifest = folder.resolve(s"complete-$fingerprint.txt")
    val channel = FileChannel.open(
      folder.resolve("sparkdl-bench.lock"),
      StandardOpenOption.CREATE,
      StandardOpenOption.WRITE,
      StandardOpenOption.READ
    )
    try {
      val reading = lock(channel, folder, shared = true)
      if (isComplete(folder, manifest)) load
      else {
        reading.release()
        lock(channel, folder, shared = false)
        val result = load
        writeManifest(folder, manifest)
        result
      }
    } catch {
      case error: IOException => throw unusable(folder, error.toString, error)
    } finally channel.close() // releases the lock
  }

  /** Native libraries that this process has mapped from below `folder`; empty where the system does not tell. */
  def mappedFiles(folder: Path): Seq[Path] = {
    val maps = Paths.get("/proc/self/maps")
    if (!Files.isReadable(maps)) Nil
    else
      Files
        .readAllLines(maps)
        .asScala
        .collect { case line if line.contains('/') => line.drop(line.indexOf('/')) }
        .distinct
        .map(Paths.get(_))
        .filter(path => path.startsWith(folder) && Files.isRegularFile(path))
        .toSeq
  }

  private def isComplete(folder: Path, manifest: Path): Boolean =
    Files.isRegularFile(manifest) && Files.readAllLines(manifest).asScala.forall { line =>
      val file = folder.resolve(line.drop(line.indexOf(' ') + 1))
      Files.isRegularFile(file) && Files.size(file).toString == line.takeWhile(_ != ' ')
    }

  private def writeManifest(folder: Path, manifest: Path): Unit = {
    val real = folder.toRealPath()
    val lines = mappedFiles(real).map(file => s"${Files.size(file)} ${real.relativize(file)}")
    if (lines.nonEmpty) write(manifest, lines)
  }

  /** Whole or not at all, for whoever reads it at the same time. */
  def write(file: Path, lines: Seq[String]): Unit = {
    val draft = Files.createTempFile(file.getParent, "draft", ".tmp")
    try {
      Files.write(draft, lines.asJava)
      Files.move(draft, file, StandardCopyOption.ATOMIC_MOVE, StandardCopyOption.REPLACE_EXISTING): Unit
    } finally Files.deleteIfExists(draft): Unit
  }

  private def lock(channel: FileChannel, folder: Path, shared: Boolean): FileLock = {
    def attempt(): Option[FileLock] =
      try Option(channel.tryLock(0, Long.MaxValue, shared))
      catch { case _: OverlappingFileLockException => None } // held by this JVM through another class loader
    val deadline = System.nanoTime + TimeoutMillis * 1000000
    Iterator
      .continually {
        val found = attempt()
        if (found.isEmpty) {
          if (System.nanoTime > deadline)
            throw unusable(
              folder,
              s"its lock sparkdl-bench.lock was held by another process for ${TimeoutMillis / 1000} s",
              null
            )
          Thread.sleep(PollMillis)
        }
        found
      }
      .collectFirst { case Some(held) => held }
      .get
  }

  private def choose(configured: String): String =
    if (configured.nonEmpty) configured
    else
      Option(System.getProperty(Property)).filter(_.nonEmpty).getOrElse {
        Paths.get(System.getProperty("java.io.tmpdir"), s"sparkdl-bench-${System.getProperty("user.name")}").toString
      }

  private def check(folder: Path): Unit =
    try {
      if (!Files.isDirectory(folder)) create(folder)
      val trial = Files.createTempFile(folder, "writable", ".tmp")
      val owner = Files.getOwner(trial)
      Files.delete(trial)
      // Code is loaded from here: a folder that somebody else made before us in a shared /tmp must not be trusted.
      if (Files.getOwner(folder) != owner)
        throw unusable(folder, s"it belongs to ${Files.getOwner(folder).getName}, not to ${owner.getName}", null)
    } catch {
      case error: IOException => throw unusable(folder, error.toString, error)
    }

  private def create(folder: Path): Unit =
    if (folder.getFileSystem.supportedFileAttributeViews.contains("posix"))
      Files.createDirectories(
        folder,
        PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"))
      )
    else Files.createDirectories(folder)

  private def unusable(folder: Path, reason: String, cause: Throwable) = new ConfigurationException(
    s"The folder $folder, into which the native libraries of the libtorch engine are unpacked, cannot be used: $reason. " +
      "Set engine.cache (spark.sparkdl.engine.cache) to a folder on every executor's host that its user owns and may write to, " +
      "with 1.5 GB free, on a file system that allows execution.",
    cause
  )
}
