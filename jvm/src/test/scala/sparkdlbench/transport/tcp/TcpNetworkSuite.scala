package sparkdlbench.transport.tcp

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.config.Settings
import sparkdlbench.transport.{GroupContext, RunSecret, Tcp}
import sparkdlbench.{ConfigurationException, LocalSpark}

import java.net.{InetAddress, ServerSocket}
import java.util.UUID

/** One end of the transport alone, in this process. */
class TcpNetworkSuite extends AnyFunSuite with LocalSpark {
  private val here = InetAddress.getByName("127.0.0.1")

  /** A rank of a group whose other ranks say what it says. */
  private final class Rank(val rank: Int, val size: Int, val timeoutMillis: Long, val secret: RunSecret)
      extends GroupContext {
    val attemptId: String = UUID.randomUUID().toString
    val settings: Settings = Settings.resolve(Map.empty, new Tcp().keys)
    def allGather(text: String): IndexedSeq[String] = IndexedSeq.fill(size)(text)
    def isKilled: Boolean = false
  }

  private def alone(timeoutMillis: Long) = new Rank(0, 1, timeoutMillis, RunSecret.random())

  test("a port that somebody holds who is ending is waited for; one that stays taken is told") {
    val holder = new ServerSocket(0, 1, here)
    val ports = PortRange(holder.getLocalPort, holder.getLocalPort)
    try {
      val kept = new TcpNetwork(alone(1000), "127.0.0.1", ports, 1, None)
      val message =
        try intercept[ConfigurationException](kept.describe(0)).getMessage
        finally kept.close()
      assert(message.contains(s"found no free port among tcp.ports = $ports"), message)
      val freeing = new Thread(() => { Thread.sleep(1000); holder.close() })
      freeing.start()
      val patient = new TcpNetwork(alone(60000), "127.0.0.1", ports, 1, None)
      try assert(patient.describe(0).port == ports.first)
      finally patient.close()
      freeing.join()
    } finally holder.close()
  }
}
