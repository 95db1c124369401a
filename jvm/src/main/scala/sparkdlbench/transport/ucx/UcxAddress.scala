package sparkdlbench.transport.ucx

import sparkdlbench.common.{ProcessMark, RunFailedException}
import sparkdlbench.transport.RunningProcess
import sparkdlbench.transport.push.PushPeer

import java.nio.file.{Files, Paths}
import java.util.Base64
import scala.util.Try

/**
 * What a rank tells the others, through Spark: where its UCX worker is, and how to notice that its process has ended.
 *
 * @param kernel
 *   same for processes of one running kernel
 * @param processes
 *   same for processes that see each other's numbers
 * @param pid
 *   its process' number there, and since when it runs
 * @param worker
 *   UCX's address of it
 */
private[ucx] final case class UcxAddress(
    process: String,
    kernel: String,
    processes: String,
    pid: RunningProcess,
    worker: Array[Byte]
)

private[ucx] object UcxAddress {
  def here(worker: Array[Byte]): UcxAddress =
    UcxAddress(PushPeer.thisProcess, ProcessMark.kernel, processSpace, RunningProcess.here, worker)

  def print(one: UcxAddress): String =
    Seq(
      one.process,
      one.kernel,
      one.processes,
      one.pid.number.toString,
      one.pid.started,
      Base64.getEncoder.encodeToString(one.worker)
    ).mkString(" ")

  def parse(text: String): UcxAddress = Try {
    val words = text.split(' ')
    require(words.length == 6)
    UcxAddress(
      words(0),
      words(1),
      words(2),
      RunningProcess(words(3).toLong, words(4)),
      Base64.getDecoder.decode(words(5))
    )
  }.getOrElse(
    throw new RunFailedException(
      s"A rank announced '$text', which cannot be read. Check that all executors run the same version of this package."
    )
  )

  private def processSpace: String =
    Try(Files.readSymbolicLink(Paths.get("/proc/self/ns/pid")).toString).getOrElse(s"of ${PushPeer.thisProcess}")
}
