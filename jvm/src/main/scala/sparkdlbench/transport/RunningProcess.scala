package sparkdlbench.transport

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path, Paths}
import scala.util.Try

/**
 * A process by number and start, since numbers are used again.
 *
 * @param started
 *   clock ticks since the kernel started; `-` where the system does not tell
 */
private[transport] final case class RunningProcess(number: Long, started: String) {
  def runs: Boolean = RunningProcess.started(Paths.get(s"/proc/$number/stat")).contains(started)
}

private[transport] object RunningProcess {
  def here: RunningProcess =
    RunningProcess(ProcessHandle.current().pid(), started(Paths.get("/proc/self/stat")).getOrElse("-"))

  /** The one that has this number now; None where there is none. */
  def of(number: Long): Option[RunningProcess] =
    started(Paths.get(s"/proc/$number/stat")).map(RunningProcess(number, _))

  /** Field 22 of proc(5); fields are counted behind the name, which may hold spaces. None: no such process, or a zombie. */
  private def started(stat: Path): Option[String] = Try {
    val text = new String(Files.readAllBytes(stat), UTF_8)
    text.drop(text.lastIndexOf(')') + 2).split(' ')
  }.toOption.filter(fields => fields.length > 19 && !Set("Z", "X").contains(fields(0))).map(_(19))
}
