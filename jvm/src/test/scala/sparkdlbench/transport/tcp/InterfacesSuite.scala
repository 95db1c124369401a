package sparkdlbench.transport.tcp

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.RunKeys

import java.net.{Inet6Address, InetAddress}

class InterfacesSuite extends AnyFunSuite {
  private def address(interface: String, ip: String, megabits: Int = 0) =
    HostAddress(interface, InetAddress.getByName(ip), megabits)

  private val host = Seq(
    address("lo", "127.0.0.1"),
    address("eth0", "10.1.0.5", 1000),
    address("eth1", "192.168.7.5", 25000),
    address("eth2", "172.16.0.5", 1000),
    address("eth1", "fe80::1", 25000)
  )
  private def matching(choice: String, spark: String = "172.16.0.5") =
    Interfaces.matching(choice, spark, host).map(_.address.getHostAddress)

  test("auto takes the fastest first, then the one that Spark uses, and no loopback or link-local address") {
    assert(matching("auto") == Seq("192.168.7.5", "172.16.0.5", "10.1.0.5"))
  }

  test("auto stays on the loopback device where Spark does") {
    assert(matching("auto", "127.0.0.1") == Seq("127.0.0.1"))
  }

  test("by name, by address, by subnet") {
    assert(matching("eth0") == Seq("10.1.0.5"))
    assert(matching("172.16.0.5") == Seq("172.16.0.5"))
    assert(matching("10.0.0.0/8") == Seq("10.1.0.5"))
    assert(matching("192.168.6.0/23") == Seq("192.168.7.5"))
  }

  test("a choice that fits nothing is refused with what there is") {
    val error = intercept[ConfigurationException](matching("192.168.6.0/24"))
    assert(error.getMessage.contains("tcp.interface = 192.168.6.0/24") && error.getMessage.contains("10.1.0.5 (eth0)"))
    intercept[ConfigurationException](matching("ib0"))
    for (broken <- Seq("10.0.0.0/33", "10.0.0.0/x", "/8", "10.0.0.0/8/9")) {
      assert(intercept[ConfigurationException](matching(broken)).getMessage.contains("is no subnet"), broken)
      assert(!Interfaces.isReadable(broken))
    }
    for (sound <- Seq("auto", "eth0", "10.0.0.0/8", "2001:db8::/32", "fe80::1%eth1"))
      assert(Interfaces.isReadable(sound))
  }

  test(
    "IPv6 addresses are what they are, however they are written, and go to other hosts without the scope of this one"
  ) {
    val bytes = InetAddress.getByName("2001:db8::5").getAddress
    val scoped = HostAddress("eth1", Inet6Address.getByAddress(null, bytes, 3), 25000)
    assert(scoped.address.getHostAddress.contains('%') && scoped.text == "2001:db8:0:0:0:0:0:5")
    assert(scoped.toString == "2001:db8:0:0:0:0:0:5 (eth1)")
    def found(choice: String) = Interfaces.matching(choice, "172.16.0.5", host :+ scoped)
    for (written <- Seq("2001:db8::5", "2001:DB8:0::5", "2001:db8::5%eth9", "2001:db8::/32"))
      assert(found(written) == Seq(scoped), written)
    // Among equals the one that Spark uses, also where it writes it another way.
    val other = scoped.copy(address = InetAddress.getByName("2001:db8::4"))
    assert(Interfaces.matching("2001:db8::/32", "2001:db8:0::5", Seq(other, scoped)).head == scoped)
    assert(
      Endpoint(scoped.text, 80).toString == "[2001:db8:0:0:0:0:0:5]:80" && Endpoint(
        "10.1.0.5",
        80
      ).toString == "10.1.0.5:80"
    )
    val offer = Offer("p", IndexedSeq(Endpoint(scoped.text, 80)))
    assert(Offer.parse(Offer.print(offer.process, offer.endpoints)) == offer)
  }

  test("the real host has addresses, one of them loopback") {
    assert(Interfaces.all.exists(_.address.isLoopbackAddress))
  }

  test("port ranges") {
    assert(PortRange.parse("0").contains(PortRange(0, 0)))
    assert(PortRange.parse("30000").get.ports == Seq(30000))
    assert(PortRange.parse("30000-30002").get.ports == Seq(30000, 30001, 30002))
    for (broken <- Seq("", "x", "5-4", "70000", "1-2-3", "-1", "0-9")) assert(PortRange.parse(broken).isEmpty, broken)
  }

  test("what cannot be read is refused with the other settings, before a run starts") {
    for ((key, value) <- Seq("tcp.ports" -> "5-4", "tcp.interface" -> "10.0.0.0/33", "tcp.channels" -> "65")) {
      val message = intercept[ConfigurationException](RunKeys.resolve(Map(key -> value))).getMessage
      assert(message.contains(s"'$key' has the value '$value'"), message)
    }
  }
}
