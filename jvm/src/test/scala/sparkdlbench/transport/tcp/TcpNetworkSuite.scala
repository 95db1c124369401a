package sparkdlbench.transport.tcp

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.Settings
import sparkdlbench.transport.push.{Mailbox, StreamId}
import sparkdlbench.transport.{GroupContext, RunSecret}
import sparkdlbench.LocalSpark

import java.net.{InetAddress, ServerSocket, Socket}
import java.util.UUID
import scala.collection.mutable.ArrayBuffer

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

  test("a rank that is refused, since strangers hold all places, connects again until there is room") {
    for (encrypted <- Seq(false, true)) {
      val secret = new Tcp().newSecret(Settings.resolve(Map("tcp.tls" -> encrypted.toString), new Tcp().keys))
      val tls = if (encrypted) Some(TlsPair.of(secret)) else None
      val ranks = (0 to 1).map(new Rank(_, 2, 60000, secret))
      val networks = ranks.map(new TcpNetwork(_, "127.0.0.1", PortRange(0, 0), 1, tls))
      val mailbox = Mailbox.open(StreamId.inboxNumber(ranks.head.attemptId), 0)
      val strangers = ArrayBuffer.empty[Socket]
      def refused(more: Long): Unit = {
        val end = System.nanoTime() + 30000000000L
        while (networks.head.refused < more && System.nanoTime() < end) Thread.sleep(10)
      }
      try {
        val port = networks.head.describe(0).port
        // Each of two ranks may be expected twice.
        for (_ <- 0 until TcpServer.MaxStrangers + 4 + 20) strangers += new Socket(here, port)
        refused(20)
        val leaving = new Thread(() => { refused(21); strangers.foreach(_.close()) })
        leaving.start()
        val peer = networks.head.describe(0).copy(inbox = mailbox.inbox)
        networks(1).connect(peer, StreamId(mailbox.inbox, 1, 0), _ => (), () => ()).abort()
        assert(networks.head.refused >= 21, s"encrypted $encrypted")
        leaving.join()
      } finally {
        strangers.foreach(_.close())
        networks.foreach(_.close())
        mailbox.close()
      }
    }
  }
}
