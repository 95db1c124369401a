package sparkdlbench.transport.tcp

import sparkdlbench.ConfigurationException

import java.net.{Inet4Address, InetAddress, NetworkInterface}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Paths}
import scala.jdk.CollectionConverters._
import scala.util.Try

/**
 * An address of this host, and the interface that has it.
 *
 * @param megabits
 *   a second, as the driver states it; 0 where it states nothing
 */
final case class HostAddress(interface: String, address: InetAddress, megabits: Int) {
  override def toString: String = s"${address.getHostAddress} ($interface)"
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
      case name => all.filter(one => one.interface == name || one.address.getHostAddress == name)
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

  /** Every address of every interface that is up. */
  def all: Seq[HostAddress] = for {
    interface <- NetworkInterface.getNetworkInterfaces.asScala.toSeq if interface.isUp
    address <- interface.getInetAddresses.asScala
  } yield HostAddress(interface.getName, address, megabits(interface.getName))

  private def megabits(name: String): Int =
    Try(new String(Files.readAllBytes(Paths.get(s"/sys/class/net/$name/speed")), UTF_8).trim.toInt).toOption
      .filter(_ > 0)
      .getOrElse(0)

  private[tcp] def inSubnet(address: InetAddress, subnet: String): Boolean = subnet.split('/') match {
    case Array(base, bits) =>
      val parsed = for {
        network <- Try(InetAddress.getByName(base).getAddress).toOption if base.nonEmpty
        length <- Try(bits.toInt).toOption if length >= 0 && length <= network.length * 8
      } yield (network, length)
      val (network, length) = parsed.getOrElse(unreadable(subnet))
      val own = address.getAddress
      own.length == network.length && (0 until length).forall { bit =>
        val mask = 0x80 >> (bit % 8)
        (own(bit / 8) & mask) == (network(bit / 8) & mask)
      }
    case _ => unreadable(subnet)
  }

  private def unreadable(subnet: String): Nothing = throw new ConfigurationException(
    s"tcp.interface = $subnet is no subnet. Write it as an address and the number of its leading bits, such as 10.1.0.0/16."
  )
}
