package sparkdlbench.common

import java.io.IOException
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, NoSuchFileException, Paths}
import scala.util.Try
import scala.util.control.NonFatal

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
final case class ProcessMark(
    boot: String,
    pidNamespace: Long,
    timeNamespace: Long,
    pid: Long,
    start: Long
) {
  def print: String = Seq[Any](boot, pidNamespace, timeNamespace, pid, start).mkString("-")

  /** Whether it lives; None where that cannot be told: processes of other namespaces, hosts and boots cannot be seen from here. */
  def lives: Option[Boolean] =
    if (!ProcessMark.own.exists(isSeenFrom)) None
    else
      try Some(ProcessMark.startOf(pid) == start)
      catch {
        case _: NoSuchFileException => Some(false)
        case NonFatal(_) => None
      }

  /** True only where it is certain. */
  def hasEnded: Boolean = lives.contains(false)

  private def isSeenFrom(own: ProcessMark): Boolean = copy(pid = own.pid, start = own.start) == own
}

object ProcessMark {
  private val Proc = Paths.get("/proc")
  private val Printed = """([0-9a-f]{32})-(\d+)-(\d+)-(\d+)-(\d+)""".r
  private val Namespace = """\w+:\[(\d+)]""".r
  private val StartField = 19 // of those behind the command's name, which may hold anything

  /** Same for all processes of one running kernel, whatever container they are in. */
  lazy val kernel: String =
    try new String(Files.readAllBytes(Paths.get("/proc/sys/kernel/random/boot_id")), UTF_8).trim
    catch { case NonFatal(_) => java.net.InetAddress.getLocalHost.getHostName }

  /** This process. None where /proc does not tell, or is that of another namespace than our own number is of. */
  lazy val own: Option[ProcessMark] = Try {
    val pid = ProcessHandle.current().pid()
    require(Files.readSymbolicLink(Proc.resolve("self")).toString == pid.toString)
    val boot = kernel.replace("-", "")
    val mark = ProcessMark(boot, namespace("pid"), Try(namespace("time")).getOrElse(0L), pid, startOf(pid))
    parse(mark.print).get // a host's name in place of the boot id is none
  }.toOption

  def parse(text: String): Option[ProcessMark] = text match {
    case Printed(boot, pids, times, pid, start) =>
      Try(ProcessMark(boot, pids.toLong, times.toLong, pid.toLong, start.toLong)).toOption
    case _ => None
  }

  /** Fails with a NoSuchFileException where there is no such process. */
  private[sparkdlbench] def startOf(pid: Long): Long = {
    val text = new String(Files.readAllBytes(Proc.resolve(pid.toString).resolve("stat")), UTF_8)
    text.substring(text.lastIndexOf(')') + 2).split(' ')(StartField).toLong
  }

  private def namespace(kind: String): Long =
    Files.readSymbolicLink(Proc.resolve("self").resolve("ns").resolve(kind)).toString match {
      case Namespace(inode) => inode.toLong
      case other => throw new IOException(s"the namespace '$other' cannot be read")
    }
}
