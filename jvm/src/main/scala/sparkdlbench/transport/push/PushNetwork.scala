package sparkdlbench.transport
package push

import io.netty.channel.Channel
import sparkdlbench.common.RunFailedException
import sparkdlbench.config.Settings

import java.nio.ByteBuffer
import java.nio.file.Path
import java.util.UUID
import scala.util.Try

/**
 * Where a rank lives.
 *
 * @param process
 *   same for ranks of one executor process, different otherwise
 * @param kernel
 *   same for processes of one running kernel
 * @param encrypted
 *   whether the process' connections are encrypted
 * @param inbox
 *   number of the rank's mailbox, which only its group learns; 0 before it has one
 */
final case class PushPeer(
    rank: Int,
    host: String,
    port: Int,
    executor: String,
    process: String,
    kernel: String,
    encrypted: Boolean,
    inbox: Long = 0
) {
  override def toString: String = s"rank $rank on host $host, executor $executor"
}

object PushPeer {

  /** This process' own part of `process`. */
  val thisProcess: String = UUID.randomUUID().toString

  def print(peer: PushPeer): String =
    Seq[Any](peer.rank, peer.host, peer.port, peer.executor, peer.process, peer.kernel, peer.encrypted, peer.inbox)
      .mkString(" ")

  def parse(text: String): PushPeer = text.split(' ') match {
    case Array(rank, host, port, executor, process, kernel, encrypted, inbox) =>
      Try(PushPeer(rank.toInt, host, port.toInt, executor, process, kernel, encrypted.toBoolean, inbox.toLong))
        .getOrElse(unreadable(text))
    case _ => unreadable(text)
  }

  private def unreadable(text: String): Nothing = throw new RunFailedException(
    s"A rank announced itself as '$text', which cannot be read. Check that all executors run the same version of this package."
  )
}

/** An ordered, one-way path for frames to one rank in another process. Used by one thread. */
trait PushChannel {

  /** Queues a frame without waiting; throws what broke the channel, if it is broken. `payload` must stay unchanged until `isDrained`. */
  def push(lane: Int, sequence: Long, payload: ByteBuffer): Unit

  /** Queues a control word after which no frame comes. */
  def pushLast(payload: ByteBuffer): Unit = push(Frame.ControlLane, 0, payload)

  /** From now on the connection is served by the calling thread; before anything is pushed. */
  def serveBy(loop: RankLoop): Unit = ()

  /**
   * Has what encrypts the connection replaced by what does it faster; before anything is pushed.
   *
   * @return
   *   who encrypts now; None where nobody does, or that cannot be replaced
   */
  def encryptFaster(): Option[String] = None

  /** The sockets below it, where they are Netty's. */
  def sockets: Seq[Channel] = Nil

  /** True when all payloads pushed so far may be changed. */
  def isDrained: Boolean

  /** Bytes written that are no payload of a lane. */
  def framingBytes: Long

  /** Ends the channel in good order after what was pushed; does not wait. */
  def finish(): Unit
  def isFinished: Boolean

  /** Ends the channel at once. */
  def abort(): Unit
}

/**
 * To a rank of this process that was ready for our lanes and has left since, with all that it needed: a run that goes on from its end has
 * nothing to exchange. Nobody reads what is sent there, on whatever channel; whoever waits for a message from there is told.
 */
object Departed extends PushChannel {
  def push(lane: Int, sequence: Long, payload: ByteBuffer): Unit = ()
  def isDrained: Boolean = true
  def framingBytes: Long = 0
  def finish(): Unit = ()
  def isFinished: Boolean = true
  def abort(): Unit = ()
}

/** The way between processes: what a transport that pushes frames needs of the world around it. */
trait PushNetwork extends AutoCloseable {

  /** Its name where bytes are counted. */
  def channel: String

  /** When executors of one host use mapped memory instead: a value of `HostLocal.mode`. */
  def hostLocal(settings: Settings): String

  /** Whose thread serves the connections: a value of `Progress.key`. */
  def progress(settings: Settings): String = "network"

  /** A loop for the calling thread to run that can serve the connections; None where they have threads of their own. */
  def rankLoop(): Option[RankLoop] = None

  /** This process as seen by others, for `rank`. */
  def describe(rank: Int): PushPeer

  /** Why other processes cannot be reached, if so: what to set. */
  def obstacle: Option[String]

  /**
   * Connects to a peer; blocks.
   *
   * @param id
   *   the stream's name; its `inbox` and `to` choose the mailbox there
   * @param onFailure
   *   called once when the stream breaks after this method has returned
   * @param onDrained
   *   called whenever `isDrained` or `isFinished` may have become true
   */
  def connect(peer: PushPeer, id: StreamId, onFailure: Throwable => Unit, onDrained: () => Unit): PushChannel

  /** What really carries the bytes, as far as it has been found out by now. */
  def facts: Map[String, String] = Map.empty

  /** The congestion control of its connections: a value of `Congestion.key`. */
  def congestion(settings: Settings): String = "system"

  /** Who encrypts its connections, where they are encrypted: a value of `Cipher.key`. */
  def cipher(settings: Settings): String = Cipher.Spark

  /** Folders for mapped files, best first. */
  def sharedDirectories: Seq[Path]

  /** Ends what belongs to this group alone. */
  override def close(): Unit = ()
}
