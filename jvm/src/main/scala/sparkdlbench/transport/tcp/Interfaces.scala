package sparkdlbench.transport.tcp

import java.net.{Inet4Address, InetAddress, NetworkInterface}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Paths}
import scala.jdk.CollectionConverters._
import scala.util.Try
import sparkdlbench.common.ConfigurationException

/**
 * An address of this host, and the interface that has it.
 *
 * @param megabits
 *   a second, as the driver states it; 0 where it states nothing
 */
final case class HostAddress(interface: String, address: InetAddress, megabits: Int) {

  /** Without the scope that Java gives an IPv6 address (`%eth0`): interfaces have other names on other hosts. */
  def text: String = address.getHostAddress.takeWhile(_ != '%')

  override def toString: String = s"$text ($interface)"
}

/** Which of a host's addresses a transport of its own may use. */
object Interfaces {

  /**
   * The addresses that fit `choice`, best first.
   *
   * @param choice
   *   `auto`, an interface's name, an address, or a subnet such as 10.1.0.0/16
   * @param sparkHost
   *   the address that Spark itself uses here. A session that keeps to the loopback device stays there; otherwise `auto` takes
   *   the fastest first, and among equals the one that Spark uses
   */
  def matching(choice: String, sparkHost: String, all: Seq[HostAddress] = all): Seq[HostAddress] = {
    val spark = Try(InetAddress.getByName(sparkHost)).toOption
    val found = choice match {
      case "auto" if spark.exists(_.isLoopbackAddress) => all.filter(_.address.isLoopbackAddress)
      case "auto" => all.filterNot(one => one.address.isLoopbackAddress || one.address.isLinkLocalAddress)
      case subnet if subnet.contains('/') => all.filter(one => inSubnet(one.address, subnet))
      case name => all.filter(one => one.interface == name || literal(name).contains(one.address))
    }
    if (found.isEmpty)
      throw new ConfigurationException(
        s"tcp.interface = $choice fits no address of host $sparkHost, which has ${all.mkString(", ")}. Valid: auto, the name of an " +
          "interface, an address, or a subnet such as 10.1.0.0/16."
      )
    found.sortBy(one =>
      (-one.megabits, !spark.contains(one.address), !one.address.isInstanceOf[Inet4Address], one.toString)
    )
  }

  /** An address that is written as one, in whichever way; never a host's name, which would be looked up. */
  private def literal(text: String): Option[InetAddress] = {
    val plain = text.takeWhile(_ != '%')
    val written = plain.contains(':') || plain.matches("[0-9]+(\\.[0-9]+){3}")
    if (written) Try(InetAddress.getByName(plain)).toOption else None
  }

  /** Every address of every interface that is up. */
  def all: Seq[HostAddress] = for {
    interface <- NetworkInterface.getNetworkInterfaces.asScala.toSeq if interface.isUp
    address <- interface.getInetAddresses.asScala
  } yield HostAddress(interface.getName, address, megabits(interface.getName))

  private def megabits(name: String): Int =
    Try(new String(Files.readAllBytes(Paths.get(s"/sys/class/net/$name/speed")), UTF_8).trim.toInt).toOption
      .filter(_ > 0)
      .getOrElse(0)

  private[tcp] def inSubnet(address: InetAddress, subnet: String): Boolean = {
    val (network, length) = parse(subnet).getOrElse(unreadable(subnet))
    val own = address.getAddress
    own.length == network.length && (0 until length).forall { bit =>
      val mask = 0x80 >> (bit % 8)
      (own(bit / 8) & mask) == (network(bit / 8) & mask)
    }
  }

  /** Whether a choice can be read at all; whether it fits an address only its host can tell. */
  private[transport] def isReadable(choice: String): Boolean = !choice.contains('/') || parse(choice).nonEmpty

  /** The bytes of a subnet's address, and how many of its leading bits count. */
  private def parse(subnet: String): Option[(Array[Byte], Int)] = subnet.split('/') match {
    case Array(base, bits) =>
      for {
        network <- literal(base).map(_.getAddress)
        length <- Try(bits.toInt).toOption if length >= 0 && length <= network.length * 8
      } yield (network, length)
    case _ => None
  }

  private def unreadable(subnet: String): Nothing = throw new ConfigurationException(
    s"tcp.interface = $subnet is no subnet. Write it as an address and the number of its leading bits, such as 10.1.0.0/16."
  )
}
