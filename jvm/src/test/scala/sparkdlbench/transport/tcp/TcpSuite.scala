package sparkdlbench.transport.tcp

import org.scalatest.BeforeAndAfterAll
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.config.Settings
import sparkdlbench.topology.{CollectiveCheck, Sliced, TestCodecs}
import sparkdlbench.transport.push.{Mailbox, StreamId}
import sparkdlbench.transport._

import java.io.{DataInputStream, IOException}
import java.net.{InetAddress, Socket}
import scala.util.{Random, Try}

/** The transport between real executor processes, over the loopback device. */
class TcpSuite extends AnyFunSuite with BeforeAndAfterAll {
  private def settings(values: (String, String)*): Settings = Settings.resolve(values.toMap, new Tcp().keys)

  test("two executors: sums, one connection and three, TLS, strangers, silence, ports, interfaces") {
    LocalCluster.run(2, 1) { sc => // no plugin and no shuffle manager of ours: the transport needs neither
      val topologies = Seq("sliced", "ring", "recursive")
      val plain = LocalCluster.ranks(sc, 2, settings())(
        Collectives.run(new Tcp().connect(_), _, Seq(1, 10007, 1000003), topologies)
      )
      assert(plain.forall(_("tcp") > 1000003L * 4 * 2) && plain.forall(_.keySet == Set("tcp", "tcp.framing")))
      assert(plain.forall(bytes => bytes("tcp.framing") < bytes("tcp") / 100))
      val inPlace = LocalCluster.ranks(sc, 2, settings())(_ => push.FrameReader.inPlaceBytes.sum).sum
      assert(inPlace > 1000003L * 4, "read by way of Netty's buffers")
      if (ServedBy.theRank)
        for (progress <- Seq("rank", "network")) {
          val served = LocalCluster.ranks(sc, 2, settings("progress" -> progress))(
            Collectives.run(new Tcp().connect(_), _, Seq(1, 10007, 1000003), Seq("sliced"))
          )
          assert(served.forall(_("tcp") > 1000003L * 4), progress)
        }
      val striped =
        LocalCluster.ranks(sc, 2, settings("tcp.channels" -> "3"))(
          Collectives.run(new Tcp().connect(_), _, Seq(1, 1000003), Seq("sliced"))
        )
      assert(striped.forall(_("tcp") > 1000003L * 4))
      val tls = settings("tcp.tls" -> "true")
      LocalCluster.ranks(sc, 2, tls, secret = new Tcp().newSecret(tls))(
        Collectives.run(new Tcp().connect(_), _, Seq(1, 1000003), Seq("sliced"))
      )
      for (encrypted <- Seq(false, true)) refusesStrangers(sc, encrypted)
      namesTheSilent(sc)
      val inRange = LocalCluster.ranks(sc, 2, settings("tcp.ports" -> "42100-42140", "tcp.interface" -> "127.0.0.0/8"))(
        Collectives.run(new Tcp().connect(_), _, Seq(1000), Seq("sliced"))
      )
      assert(inRange.forall(_("tcp") > 0))
      val wrong = Try(LocalCluster.ranks(sc, 2, settings("tcp.interface" -> "nosuch0"))(new Tcp().connect(_).close()))
      assert(wrong.failed.get.getMessage.contains("tcp.interface = nosuch0 fits no address"))
    }
  }

  /** A rank exchanges while its server is knocked at by clients that are not of the run. */
  private def refusesStrangers(sc: org.apache.spark.SparkContext, encrypted: Boolean): Unit = {
    val chosen = settings("tcp.tls" -> encrypted.toString)
    val results = LocalCluster.ranks(sc, 2, chosen, secret = new Tcp().newSecret(chosen)) { group =>
      val tls = if (encrypted) Some(TlsPair.of(group.secret)) else None
      val network = new TcpNetwork(group, "auto", PortRange(0, 0), 1, tls)
      val transport = push.PushTransport.connect(group, network)
      try {
        val me = network.describe(group.rank)
        val knocking = new Thread(() => Strangers.knock(me.host, me.port, Mailbox.all.find(_.rank == group.rank).get))
        knocking.start()
        CollectiveCheck(new Sliced, TestCodecs.plain.head, TestCodecs.plain.head, 200000, 20000, 60).run(transport)
        knocking.join(60000)
        // A client sees its connection end before the server has counted it: TLS closes first, and tells its reason afterwards.
        val end = System.nanoTime() + 60000000000L
        while (network.refused < Strangers.Knocks && System.nanoTime() < end) Thread.sleep(20)
        network.refused
      } finally transport.close()
    }
    assert(results.forall(_ >= Strangers.Knocks), s"of ${Strangers.Knocks}, encrypted $encrypted: $results")
  }

  private def namesTheSilent(sc: org.apache.spark.SparkContext): Unit = {
    val results = LocalCluster.ranks(sc, 2, settings())(Collectives.silence(new Tcp().connect(_), _, 1500))
    assert(results(0).contains("waited 1500 ms in phase 'receive message 0 of lane 0' for rank 1 on host 127.0.0.1"))
  }
}

/** Clients that are not of the run. */
private object Strangers {
  private val Fuzzed = 12

  /** Those that a server must notice and refuse. */
  val Knocks: Int = Fuzzed + 4

  def knock(host: String, port: Int, mailbox: Mailbox): Unit = {
    val ofTheRun = mailbox.inbox
    val random = new Random(port)
    for (_ <- 0 until Fuzzed) {
      val bytes = new Array[Byte](Handshake.HelloBytes + random.nextInt(2000))
      random.nextBytes(bytes)
      say(host, port)(_ => bytes)
    }
    val foreign = new Handshake(Array.fill[Byte](32)(7))
    val rank = mailbox.rank
    // Does not know the secret; has recorded another connection's proof; looks for somebody else; speaks of a huge number.
    answer(host, port, foreign, foreign.hello(StreamId(ofTheRun, 1 - rank, rank), 0, 1), stale = false)
    answer(host, port, foreign, foreign.hello(StreamId(ofTheRun, 1 - rank, rank), 0, 1), stale = true)
    say(host, port)(_ => foreign.hello(StreamId(ofTheRun, 1 - rank, 1 - rank), 0, 1))
    say(host, port)(_ => foreign.hello(StreamId(ofTheRun, 1 - rank, rank), 0, 1).updated(28, 0x7f.toByte))
    say(host, port)(_ => Array.emptyByteArray) // says nothing and goes; nothing to refuse
  }

  /** Sends, and waits until the server has closed the connection. */
  private def say(host: String, port: Int)(bytes: Socket => Array[Byte]): Unit = {
    val socket = new Socket(InetAddress.getByName(host), port)
    try {
      socket.setSoTimeout(20000)
      val sent = bytes(socket)
      if (sent.nonEmpty) {
        socket.getOutputStream.write(sent)
        socket.getOutputStream.flush()
        while (socket.getInputStream.read() >= 0) {}
      }
    } catch { case _: IOException => } // closed while we wrote: refused as well
    finally socket.close()
  }

  private def answer(host: String, port: Int, handshake: Handshake, hello: Array[Byte], stale: Boolean): Unit =
    say(host, port) { socket =>
      socket.getOutputStream.write(hello)
      val nonce = new Array[Byte](Handshake.NonceBytes)
      val proof = new Array[Byte](Handshake.ProofBytes)
      val in = new DataInputStream(socket.getInputStream)
      in.readFully(nonce)
      in.readFully(proof)
      if (stale) handshake.clientProof(hello, handshake.freshNonce()) else handshake.clientProof(hello, nonce)
    }
}
