package sparkdlbench.transport.tcp

import java.io.IOException
import java.net.{InetAddress, InetSocketAddress, ServerSocket}
import scala.util.Try
import sparkdlbench.common.ConfigurationException

/** Ports that a server may listen on, in the order in which it tries them; `0` lets the system choose. */
final case class PortRange(first: Int, last: Int) {
  def ports: Seq[Int] = first to last
  override def toString: String = if (first == last) first.toString else s"$first-$last"

  /**
   * Throws a ConfigurationException where fewer than `ranks` of these ports are free at an address of this host. Looks several times,
   * because other executors of the host may be looking just now.
   */
  def check(address: InetAddress, ranks: Int): Unit = if (first > 0) {
    var free = freeAt(address, ranks)
    var looks = 1
    while (free < ranks && looks < PortRange.Looks) {
      Thread.sleep(PortRange.LookMillis)
      free = freeAt(address, ranks)
      looks += 1
    }
    if (free < ranks)
      throw new ConfigurationException(
        s"tcp.ports = $this, of which $free are free at ${address.getHostAddress}, and each rank of a host needs one: at least $ranks here. Give a " +
          "larger range, or 0 for any free port, or end what listens there."
      )
  }

  /** How many, `enough` at most. */
  private def freeAt(address: InetAddress, enough: Int): Int =
    ports.iterator.filter(PortRange.isFree(address, _)).take(enough).size
}

object PortRange {
  private val Looks = 5
  private val LookMillis = 100L

  /** None for what is neither 0, nor a port, nor a range of ports. */
  def parse(text: String): Option[PortRange] =
    text.split('-').map(part => Try(part.trim.toInt).getOrElse(-1)) match {
      case Array(0) => Some(PortRange(0, 0))
      case Array(one) if valid(one) => Some(PortRange(one, one))
      case Array(first, last) if valid(first) && valid(last) && first <= last => Some(PortRange(first, last))
      case _ => None
    }

  private def valid(port: Int): Boolean = port >= 1 && port <= 65535

  private def isFree(address: InetAddress, port: Int): Boolean = {
    val socket = new ServerSocket()
    try {
      socket.bind(new InetSocketAddress(address, port))
      true
    } catch { case _: IOException => false }
    finally socket.close()
  }
}
