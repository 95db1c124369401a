package sparkdlbench.transport.ucx

import java.io.{IOException, InputStream}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.attribute.PosixFilePermissions
import java.nio.file.{Files, Path, Paths, StandardCopyOption}
import java.security.MessageDigest
import scala.jdk.CollectionConverters._
import scala.util.Try
import scala.util.control.NonFatal
import sparkdlbench.common.ConfigurationException

/**
 * The UCX libraries of this process, loaded from `folder`: `lib/` with them (unpacked, or links to the hosts' own), and
 * `etc/ucx/ucx.conf`, which UCX reads beside its libraries. There we keep UCX from taking the JVM's signals (it must be said
 * before the libraries are loaded, and a JVM cannot change its environment), and have it write down what it chooses.
 */
final class UcxLibraries private (folder: Path) {
  import UcxLibraries._
  private val log = folder.resolve("log").resolve(ProcessHandle.current().pid().toString)
  log.toFile.deleteOnExit()

  /** Length of what UCX has written down so far. */
  def written: Long = Try(Files.size(log)).getOrElse(0L)

  /** The transports and devices that UCX has chosen since `from`, such as `sysv/memory`; empty where it did not say. */
  def chosen(from: Long): Seq[String] = Try {
    val text = new String(Files.readAllBytes(log).drop(from.toInt), UTF_8)
    Configured
      .findAllMatchIn(text)
      .flatMap(line => Way.findAllMatchIn(line.group(1)).flatMap(_.group(1).split(' ')))
      .toSeq
      .distinct
      .sorted
  }.getOrElse(Nil)
}

object UcxLibraries {

  /** Of jucx and of the libraries. */
  val Version = "1.18.1"
  private val Resources = "sparkdlbench/native/ucx/linux-x86_64"
  private val Names = Seq("libucm.so.0", "libucs.so.0", "libuct.so.0", "libucp.so.0")
  private val Configured = """(?:intra|inter)-node cfg#\d+(.*)""".r
  private val Way = """\w+\(([^)]*)\)""".r
  private var loaded = Map.empty[String, UcxLibraries]

  /**
   * Loads them, once a process.
   *
   * @param configured
   *   the key `ucx.libraries`
   */
  def load(configured: String): UcxLibraries = synchronized {
    loaded.getOrElse(
      configured, {
        val loader = getClass.getClassLoader
        if (Try(Class.forName("org.openucx.jucx.NativeLibs", false, loader)).isFailure)
          missing(s"the jar of jucx is not on this executor's class path")
        loaded.headOption.foreach { case (other, _) =>
          throw new ConfigurationException(
            s"ucx.libraries = '$configured', but this executor has loaded the UCX libraries of '$other' already. Use one value in a session."
          )
        }
        val folder =
          try if (configured.isEmpty) unpacked(loader) else linked(Paths.get(configured).toAbsolutePath)
          catch {
            case error: IOException =>
              throw new ConfigurationException(
                s"The UCX libraries could not be made ready in ${root()}: $error. Set java.io.tmpdir of the executors to a folder that their user owns " +
                  "and may write to, on a file system that allows execution.",
                error
              )
          }
        try Names.foreach(name => System.load(folder.resolve("lib").resolve(name).toString))
        catch { case error: UnsatisfiedLinkError => missing(s"they do not load: ${error.getMessage}") }
        val made = new UcxLibraries(folder)
        loaded = Map(configured -> made)
        made
      }
    )
  }

  private def missing(what: String): Nothing = throw new ConfigurationException(
    s"Transport ucx needs the jar org.openucx:jucx:$Version and the UCX libraries of that version (Linux, x86-64), and $what. Run `sparkdl-bench jars fetch " +
      "--ucx`, which brings both to where sessions of sparkdl-bench find them, or give the two jars that it brings to spark.jars (Spark 3.5: to " +
      "spark.executor.extraClassPath); for RDMA, set ucx.libraries to the folder of the hosts' own UCX. Or use transport tcp, which needs neither."
  )

  private def unpacked(loader: ClassLoader): Path = {
    val list = Option(loader.getResourceAsStream(s"$Resources/files.txt"))
      .getOrElse(missing("the jar of the libraries is not on this executor's class path"))
    val index = read(list)
    val files = new String(index, UTF_8).linesIterator.filter(_.nonEmpty).map(_.split(' ').last).toSeq
    made(digest(index)) { draft =>
      files.foreach { file =>
        val target = draft.resolve("lib").resolve(file).normalize()
        require(target.startsWith(draft), file)
        Files.createDirectories(target.getParent)
        val bytes = loader.getResourceAsStream(s"$Resources/$file")
        try Files.copy(bytes, target)
        finally bytes.close()
      }
    }
  }

  /** Links to the hosts' own libraries, so that UCX finds our settings beside them. */
  private def linked(source: Path): Path = {
    Names
      .filterNot(name => Files.isRegularFile(source.resolve(name)))
      .foreach(name => missing(s"ucx.libraries = $source holds no $name on this executor's host"))
    made(digest(source.toString.getBytes(UTF_8))) { draft =>
      val lib = Files.createDirectories(draft.resolve("lib"))
      Names.foreach(name => Files.createSymbolicLink(lib.resolve(name), source.resolve(name)))
      val modules = source.resolve("ucx")
      if (Files.isDirectory(modules)) Files.createSymbolicLink(lib.resolve("ucx"), modules): Unit
    }
  }

  /** The folder of that name, made whole elsewhere and then moved there: several processes may start at the same time. */
  private def made(name: String)(fill: Path => Unit): Path = {
    val folder = root().resolve(s"ucx-$Version-$name")
    if (!Files.isDirectory(folder)) {
      val draft = Files.createTempDirectory(root(), ".ucx-")
      try {
        fill(draft)
        Files.createDirectories(draft.resolve("log"))
        val settings = Seq("UCX_ERROR_SIGNALS=", "UCX_LOG_LEVEL=info", s"UCX_LOG_FILE=$folder/log/%p")
        Files.write(Files.createDirectories(draft.resolve("etc/ucx")).resolve("ucx.conf"), settings.asJava)
        try Files.move(draft, folder, StandardCopyOption.ATOMIC_MOVE): Unit
        catch { case _: IOException if Files.isDirectory(folder) => } // another process was faster
      } finally if (Files.exists(draft)) delete(draft)
    }
    folder
  }

  /** Code is loaded from here, so a folder that somebody else made before us in a shared /tmp is not trusted. */
  private def root(): Path = {
    val folder = Paths.get(System.getProperty("java.io.tmpdir"), s"sparkdl-bench-${System.getProperty("user.name")}")
    if (!Files.isDirectory(folder))
      Files.createDirectories(
        folder,
        PosixFilePermissions.asFileAttribute(PosixFilePermissions.fromString("rwx------"))
      )
    val trial = Files.createTempFile(folder, "writable", ".tmp")
    val owner = Files.getOwner(trial)
    Files.delete(trial)
    if (Files.getOwner(folder) != owner)
      throw new IOException(s"it belongs to ${Files.getOwner(folder).getName}, not to ${owner.getName}")
    folder
  }

  private def read(stream: InputStream): Array[Byte] = try stream.readAllBytes()
  finally stream.close()

  private def digest(bytes: Array[Byte]): String =
    MessageDigest.getInstance("SHA-256").digest(bytes).take(8).map(byte => f"${byte & 0xff}%02x").mkString

  private def delete(folder: Path): Unit = {
    val all = Files.walk(folder)
    try all.iterator.asScala.toSeq.reverse.foreach(Files.delete)
    catch { case NonFatal(_) => }
    finally all.close()
  }
}
