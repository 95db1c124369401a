package sparkdlbench.engine.libtorch

import sparkdlbench.ConfigurationException

import java.io.IOException
import java.nio.file.attribute.PosixFilePermissions
import java.nio.file.{Files, Path, Paths}

/**
 * The folder that native libraries are unpacked into. JavaCPP takes a file lock in it while it unpacks, so several JVMs may
 * share one folder, from empty on.
 */
private[libtorch] object NativeCache {
  private val Property = "org.bytedeco.javacpp.cachedir"

  /**
   * Makes the folder where it is missing, checks it, and tells JavaCPP. Call before any JavaCPP class is used.
   *
   * @param configured
   *   the key `engine.cache`; empty for the default
   */
  def prepare(configured: String): Path = {
    val folder = Paths.get(choose(configured)).toAbsolutePath
    check(folder)
    System.setProperty(Property, folder.toString)
    folder
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
      // Code is loaded from here: a folder that somebody else made beforehand in a shared /tmp must not be trusted.
      if (Files.getOwner(folder) != owner)
        throw unusable(folder, s"it belongs to ${Files.getOwner(folder).getName}, not to ${owner.getName}", null)
    } catch {
      case error: IOException => throw unusable(folder, error.toString, error)
    }

  private def create(folder: Path): Unit =
    if (folder.getFileSystem.supportedFileAttributeViews.contains("posix"))
      Files.createDirectories(folder, PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------")))
    else Files.createDirectories(folder)

  private def unusable(folder: Path, reason: String, cause: Throwable) = new ConfigurationException(
    s"The folder $folder, into which the native libraries of the libtorch engine are unpacked, cannot be used: $reason. " +
      "Set engine.cache (spark.sparkdl.engine.cache) to a folder on every executor's host that its user owns and may write to, " +
      "with 1.5 GB free, on a file system that allows execution.",
    cause
  )
}
