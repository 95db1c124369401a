package sparkdlbench.transport
package push

import sparkdlbench.config.Key

import java.io.{IOException, RandomAccessFile}
import java.nio.channels.FileChannel
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.attribute.PosixFilePermissions
import java.nio.file.{Files, LinkOption, NoSuchFileException, Path, Paths}
import java.nio.{ByteBuffer, ByteOrder, MappedByteBuffer}
import java.security.SecureRandom
import scala.util.Try
import scala.util.control.NonFatal

/** When ranks of different executors on one host exchange through a mapped file instead of sockets. */
object HostLocal {
  val mode: Key[String] = Key.choice(
    "host_local",
    "auto",
    Seq("auto", "on", "off"),
    "Executors on one host exchange through mapped memory: auto (where both prove that they share it, and never beside encrypted connections), on (also beside encryption; fails where they do not share it), off"
  )

  /** Same for all processes of one running kernel, whatever container they are in. */
  lazy val kernel: String =
    try new String(Files.readAllBytes(Paths.get("/proc/sys/kernel/random/boot_id")), UTF_8).trim
    catch { case NonFatal(_) => java.net.InetAddress.getLocalHost.getHostName }
}

/**
 * A file that one rank has made and filled with zeros for the messages of another rank.
 *
 * @param nonce
 *   32 hexadecimal digits; what the file must begin with
 */
final case class HostLocalOffer(path: String, bytes: Long, nonce: String)

/**
 * Mapped memory shared by two processes. Its file carries no name any more once both have mapped it, so nothing is left
 * behind however they end; where its maker is killed before that, the next maker of such a file removes it. Bytes 0–15: the
 * maker's nonce; 16–31: the nonce again, inverted, as the other's answer; lanes follow.
 */
final class HostLocalSegment private (val offer: HostLocalOffer, memory: MappedByteBuffer) {
  private val order = memory.order(ByteOrder.nativeOrder())

  /** Memory of the lanes, in the order of their ids. */
  def slots(lanes: Seq[Lane], destination: Lane => Option[ByteBuffer]): Seq[LaneSlots] = {
    var offset = HostLocalSegment.HeaderBytes
    lanes.sortBy(_.id).map { lane =>
      val bytes = LaneSlots.bytes(lane).toInt
      val slots = new LaneSlots(lane, order.slice(offset, bytes), destination(lane))
      offset += bytes
      slots
    }
  }

  private def words(at: Int): (Long, Long) = (SharedWords.getAcquire(order, at), SharedWords.getAcquire(order, at + 8))

  /** The other end, which has read the nonce, says so in the memory itself. */
  def answer(): Unit = {
    val (high, low) = words(0)
    SharedWords.setVolatile(order, 16, ~high)
    SharedWords.setVolatile(order, 24, ~low)
  }

  def isAnswered: Boolean = { val (high, low) = words(0); words(16) == ((~high, ~low)) }

  private def nonce: String = { val (high, low) = words(0); f"$high%016x$low%016x" }

  def unlink(): Unit = Files.deleteIfExists(Paths.get(offer.path)): Unit
}

object HostLocalSegment {
  val HeaderBytes: Int = LaneSlots.Alignment
  private val Prefix = "sparkdl-host-local-"

  def bytes(lanes: Seq[Lane]): Long = HeaderBytes + lanes.map(LaneSlots.bytes).sum

  /** A new segment of `bytes` in the first of `directories` that can hold it. None where none can. */
  def create(directories: Seq[Path], bytes: Long): Option[HostLocalSegment] =
    if (bytes > Int.MaxValue) None
    else
      MappedFile.create(directories, Prefix, bytes.toInt).map { case (file, memory) =>
        val random = new SecureRandom
        memory.order(ByteOrder.nativeOrder()).putLong(0, random.nextLong()).putLong(8, random.nextLong())
        val nonce = f"${memory.getLong(0)}%016x${memory.getLong(8)}%016x"
        new HostLocalSegment(HostLocalOffer(file.toString, bytes, nonce), memory)
      }

  /** Maps what another rank offers. None where the file is not there, or is not the one that the other rank has made. */
  def attach(offer: HostLocalOffer): Option[HostLocalSegment] = try {
    val file = Paths.get(offer.path)
    val plain = file.getFileName.toString.startsWith(Prefix) && Files.isRegularFile(file) && !Files.isSymbolicLink(file)
    if (!plain || Files.size(file) != offer.bytes) None
    else {
      val memory = MappedFile.withFile(file)(_.map(FileChannel.MapMode.READ_WRITE, 0, offer.bytes))
      Some(new HostLocalSegment(offer, memory)).filter(_.nonce == offer.nonce)
    }
  } catch { case _: IOException | _: SecurityException => None }
}

/**
 * Which process it is, among all that the running kernel has had, as far as another process can tell.
 *
 * @param boot
 *   the kernel's boot id, without its dashes
 * @param pidNamespace
 *   inode of the namespace that `pid` is a number of: containers that share /dev/shm may have one each
 * @param timeNamespace
 *   inode of the namespace that `start` is a time of; 0 where the kernel has none
 * @param start
 *   clock ticks from boot to the process' start: its number may be another's later
 */
private[push] final case class ProcessMark(
    boot: String,
    pidNamespace: Long,
    timeNamespace: Long,
    pid: Long,
    start: Long
) {
  def print: String = Seq[Any](boot, pidNamespace, timeNamespace, pid, start).mkString("-")

  /** True only where it is certain: processes of other namespaces, hosts and boots cannot be seen from here. */
  def hasEnded: Boolean = ProcessMark.own.exists(isSeenFrom) && {
    try ProcessMark.startOf(pid) != start
    catch {
      case _: NoSuchFileException => true
      case NonFatal(_) => false
    }
  }

  private def isSeenFrom(own: ProcessMark): Boolean = copy(pid = own.pid, start = own.start) == own
}

private[push] object ProcessMark {
  private val Proc = Paths.get("/proc")
  private val Printed = """([0-9a-f]{32})-(\d+)-(\d+)-(\d+)-(\d+)""".r
  private val Namespace = """\w+:\[(\d+)]""".r
  private val StartField = 19 // of those behind the command's name, which may hold anything

  /** This process. None where /proc does not tell, or is that of another namespace than our own number is of. */
  lazy val own: Option[ProcessMark] = Try {
    val pid = ProcessHandle.current().pid()
    require(Files.readSymbolicLink(Proc.resolve("self")).toString == pid.toString)
    val boot = HostLocal.kernel.replace("-", "")
    val mark = ProcessMark(boot, namespace("pid"), Try(namespace("time")).getOrElse(0L), pid, startOf(pid))
    parse(mark.print).get // a host's name in place of the boot id is none
  }.toOption

  def parse(text: String): Option[ProcessMark] = text match {
    case Printed(boot, pids, times, pid, start) =>
      Try(ProcessMark(boot, pids.toLong, times.toLong, pid.toLong, start.toLong)).toOption
    case _ => None
  }

  /** Fails with a NoSuchFileException where there is no such process. */
  private[push] def startOf(pid: Long): Long = {
    val text = new String(Files.readAllBytes(Proc.resolve(pid.toString).resolve("stat")), UTF_8)
    text.substring(text.lastIndexOf(')') + 2).split(' ')(StartField).toLong
  }

  private def namespace(kind: String): Long =
    Files.readSymbolicLink(Proc.resolve("self").resolve("ns").resolve(kind)).toString match {
      case Namespace(inode) => inode.toLong
      case other => throw new IOException(s"the namespace '$other' cannot be read")
    }
}

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

  /** A word that another process may write, at a multiple of 8 bytes. */
  def word(memory: ByteBuffer, offset: Int): Long = SharedWords.getAcquire(memory, offset)

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
