package sparkdlbench.transport.mpi

import sparkdlbench.common.{Json, RunFailedException}
import sparkdlbench.transport.push.PushPeer

import scala.util.Try

/**
 * What a rank tells the others before the job. Prints and parses, with any character in the paths.
 *
 * @param folder
 *   where task and process leave each other word
 * @param python
 *   that runs the process
 * @param hostName
 *   by which MPI tells its host
 */
private[mpi] final case class MpiPlace(folder: String, python: String, hostName: String, peer: PushPeer)

private[mpi] object MpiPlace {
  def print(one: MpiPlace): String = Json.line(
    Json.fields(
      "folder" -> one.folder,
      "python" -> one.python,
      "host_name" -> one.hostName,
      "peer" -> PushPeer.print(one.peer)
    )
  )

  def parse(text: String): MpiPlace = Try {
    val read = Json.read(text)
    def word(name: String) = read.required(name).asText
    MpiPlace(word("folder"), word("python"), word("host_name"), PushPeer.parse(word("peer")))
  }.getOrElse(
    throw new RunFailedException(
      s"A rank announced '$text', which cannot be read. Check that all executors run the same version of this package."
    )
  )
}
