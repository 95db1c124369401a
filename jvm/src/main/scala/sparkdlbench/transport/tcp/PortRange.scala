package sparkdlbench.transport.tcp

import sparkdlbench.ConfigurationException

import scala.util.Try

/** Ports that a server may listen on, in the order in which it tries them; `0` lets the system choose. */
final case class PortRange(first: Int, last: Int) {
  def ports: Seq[Int] = first to last
  override def toString: String = if (first == last) first.toString else s"$first-$last"
}

object PortRange {
  def parse(text: String): PortRange = {
    val parts = text.split('-').map(part => Try(part.trim.toInt).getOrElse(-1))
    parts match {
      case Array(0) => PortRange(0, 0)
      case Array(one) if valid(one) => PortRange(one, one)
      case Array(first, last) if valid(first) && valid(last) && first <= last => PortRange(first, last)
      case _ =>
        throw new ConfigurationException(
          s"tcp.ports = $text is no port and no range of ports. Write 0 (any free port), one port, or a range such as 30000-30100; " +
            "each rank needs one port of its host."
        )
    }
  }

  private def valid(port: Int): Boolean = port >= 1 && port <= 65535
}
