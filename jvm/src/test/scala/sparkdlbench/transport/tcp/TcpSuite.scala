package sparkdlbench.transport.tcp

import org.scalatest.BeforeAndAfterAll
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.config.Settings
import sparkdlbench.topology.{CollectiveCheck, Sliced, TestCodecs}
import sparkdlbench.transport.push.{Mailbox, PushPeer, StreamId}
import sparkdlbench.transport._

import java.io.{ByteArrayInputStream, DataInputStream, IOException}
import java.net.{InetAddress, Socket}
import java.security.KeyStore
import java.security.cert.X509Certificate
import javax.net.ssl.{KeyManagerFactory, SSLContext, TrustManager, X509TrustManager}
import scala.util.{Failure, Random, Try}

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
      assert(Collectives.congestion(sc, new Tcp) == Set("reno"))
      probesAtOnce(sc)
      val tls = settings("tcp.tls" -> "true")
      LocalCluster.ranks(sc, 2, tls, secret = new Tcp().newSecret(tls))(
        Collectives.run(new Tcp().connect(_), _, Seq(1, 1000003), Seq("sliced"))
      )
      for (encrypted <- Seq(false, true)) refusesStrangers(sc, encrypted)
      namesTheSilent(sc)
      listensInRange(sc)
      val wrong = Try(LocalCluster.ranks(sc, 2, settings("tcp.interface" -> "nosuch0"))(new Tcp().connect(_).close()))
      assert(wrong.failed.get.getMessage.contains("tcp.interface = nosuch0 fits no address"))
    }
  }

  /** The ports that the ranks tell each other, at which they then are connected to, are those of the range. */
  private def listensInRange(sc: org.apache.spark.SparkContext): Unit = {
    val range = PortRange(42100, 42140)
    val chosen = settings("tcp.ports" -> range.toString, "tcp.interface" -> "127.0.0.0/8")
    val heard = LocalCluster.ranks(sc, 2, chosen) { group =>
      val overhearing = new Overhearing(group)
      val bytes = Collectives.run(new Tcp().connect(_), overhearing, Seq(1000), Seq("sliced"))
      (bytes("tcp"), overhearing.first.flatMap(text => Offer.parse(text).endpoints.map(_.port)))
    }
    heard.foreach { case (bytes, ports) =>
      assert(bytes > 0 && ports.size == 2 && ports.distinct.size == 2 && ports.forall(range.ports.contains), ports)
    }
  }

  /**
   * Where a host has several addresses, those that lead nowhere are waited for together, and one that can be reached is taken, though
   * the fastest interface leads nowhere.
   */
  private def probesAtOnce(sc: org.apache.spark.SparkContext): Unit = {
    val chosen = LocalCluster.ranks(sc, 2, settings()) { group =>
      val offers = new Reachable(group)
      val network = new TcpNetwork(offers, "127.0.0.0/8", PortRange(0, 0), 1, None, () => Reachable.addresses)
      val transport = push.PushTransport.connect(offers, network)
      try {
        CollectiveCheck(new Sliced, TestCodecs.plain.head, TestCodecs.plain.head, 1000, 100, 3).run(transport)
        (network.describe(group.rank).host, transport.facts("tcp.interface"), offers.first, offers.betweenMillis)
      } finally transport.close()
    }
    chosen.foreach { case (host, interface, first, millis) =>
      assert(first == "127.0.0.2", "the fastest is not the first choice")
      assert(host == "127.0.0.1" && interface == "127.0.0.1 (live0)")
      // One after the other they would take 3 s each where packets to them are lost.
      assert(millis < 3000L * (Reachable.Nowhere - 1), s"$millis ms")
    }
  }

  /** A rank exchanges while its server is connected to by clients that are not of the run. */
  private def refusesStrangers(sc: org.apache.spark.SparkContext, encrypted: Boolean): Unit = {
    val chosen = settings("tcp.tls" -> encrypted.toString)
    val attempts = Strangers.attempts(encrypted)
    val foreign = new Tcp().newSecret(chosen)
    val results = LocalCluster.ranks(sc, 2, chosen, secret = new Tcp().newSecret(chosen)) { group =>
      val tls = if (encrypted) Some(TlsPair.of(group.secret)) else None
      val network = new TcpNetwork(group, "auto", PortRange(0, 0), 1, tls)
      val transport = push.PushTransport.connect(group, network)
      try {
        val me = network.describe(group.rank)
        val mailbox = Mailbox.all.find(_.rank == group.rank).get
        @volatile var attacked: Try[Unit] = Failure(new IllegalStateException("the attack has not ended"))
        val attacker = new Thread(() => attacked = Try(Strangers.connect(me, mailbox, group.secret, foreign)))
        attacker.start()
        CollectiveCheck(new Sliced, TestCodecs.plain.head, TestCodecs.plain.head, 200000, 20000, 60).run(transport)
        attacker.join(60000)
        attacked.get
        // A client sees its connection end before the server has counted it: TLS closes first, and tells its reason afterwards.
        val end = System.nanoTime() + 60000000000L
        while (network.refused < attempts && System.nanoTime() < end) Thread.sleep(20)
        network.refused
      } finally transport.close()
    }
    assert(results.forall(_ >= attempts), s"of $attempts, encrypted $encrypted: $results")
  }

  private def namesTheSilent(sc: org.apache.spark.SparkContext): Unit = {
    val results = LocalCluster.ranks(sc, 2, settings())(Collectives.silence(new Tcp().connect(_), _, 1500))
    assert(results(0).contains(Collectives.silent + " for rank 1 on host 127.0.0.1"), results(0))
  }
}

/** A rank whose talk with the others is listened to, or changed. */
private abstract class Hearing(of: GroupContext) extends GroupContext {
  def rank: Int = of.rank
  def size: Int = of.size
  def attemptId: String = of.attemptId
  def secret: RunSecret = of.secret
  def settings: Settings = of.settings
  def timeoutMillis: Long = of.timeoutMillis
  def isKilled: Boolean = of.isKilled
}

/** A rank of which is noted what all tell each other first. */
private final class Overhearing(group: GroupContext) extends Hearing(group) {
  @volatile var first = IndexedSeq.empty[String]

  def allGather(text: String): IndexedSeq[String] = {
    val all = group.allGather(text)
    if (first.isEmpty) first = all
    all
  }
}

/**
 * A rank of a host that has addresses more, which lead nowhere: what the ranks tell each other first is their endpoints, of which the
 * first is replaced and others are added, and the time until they tell each other what they have reached is taken.
 */
private final class Reachable(group: GroupContext) extends Hearing(group) {
  private val gathered = scala.collection.mutable.ArrayBuffer.empty[Long]
  def betweenMillis: Long = (gathered(1) - gathered(0)) / 1000000

  /** The address that this rank would rather have than any other. */
  @volatile var first = ""

  def allGather(text: String): IndexedSeq[String] = {
    if (gathered.nonEmpty) gathered += System.nanoTime()
    else first = Offer.parse(text).endpoints.head.host
    val all = group.allGather(text)
    if (gathered.isEmpty) gathered += System.nanoTime()
    if (gathered.size > 1) all else all.map(elsewhere)
  }

  private def elsewhere(text: String): String = {
    val offer = Offer.parse(text)
    // TEST-NET-1 (RFC 5737): no host has such an address, and packets to it are lost or refused.
    val nowhere = (1 to Reachable.Nowhere).map(n => Endpoint(s"192.0.2.$n", 9))
    Offer.print(offer.process, (nowhere.head +: offer.endpoints.tail) ++ nowhere.tail)
  }
}

private object Reachable {
  val Nowhere = 6

  /** Of the loopback device, where Linux listens at any address of 127.0.0.0/8. */
  def addresses: Seq[HostAddress] = Seq(
    HostAddress("live0", InetAddress.getByName("127.0.0.1"), 1000),
    HostAddress("dead0", InetAddress.getByName("127.0.0.2"), 10000)
  )
}

/**
 * Clients that are not of the run.
 *
 * @param open
 *   a new connection to a rank's server
 */
private final class Strangers(open: () => Socket, mailbox: Mailbox) {
  private val rank = mailbox.rank
  private val ofTheRun = mailbox.inbox

  /** @param own the run's own handshake, where an exchange of its ranks' is to be recorded and sent again */
  def connect(own: Option[Handshake]): Unit = {
    val random = new Random(Strangers.Seed + rank)
    for (_ <- 0 until Strangers.Fuzzed) {
      val bytes = new Array[Byte](Handshake.HelloBytes + random.nextInt(2000))
      random.nextBytes(bytes)
      say(_.getOutputStream.write(bytes))
    }
    val foreign = new Handshake(Array.fill[Byte](32)(7))
    // Does not know the secret; looks for somebody else; speaks of a huge number.
    proves(foreign, foreign.hello(StreamId(ofTheRun, 1 - rank, rank), 0, 1))
    say(_.getOutputStream.write(foreign.hello(StreamId(ofTheRun, 1 - rank, 1 - rank), 0, 1)))
    say(_.getOutputStream.write(foreign.hello(StreamId(ofTheRun, 1 - rank, rank), 0, 1).updated(28, 0x7f.toByte)))
    own.foreach { genuine =>
      // A stream of the run's, of which all was recorded but the server's nonce is another one now.
      replays(genuine, genuine.hello(StreamId(ofTheRun, 1 - rank, rank), 0, 1))
      // An exchange that was accepted, word for word.
      val exchange = probe(genuine)
      val proof = proves(genuine, exchange)
      require(proof._2 == Seq(TcpServer.Accepted), s"the run's own proof was answered by ${proof._2}")
      val again = replayed(exchange, proof._1)
      require(again.isEmpty, s"a recorded exchange was answered by $again")
    }
    open().close() // says nothing and goes; nothing to refuse
  }

  /** What the server says to somebody who knows the run's secret and asks whether the right rank is here. */
  def asks(genuine: Handshake): Seq[Byte] = proves(genuine, probe(genuine))._2

  private def probe(genuine: Handshake): Array[Byte] = genuine.hello(StreamId(0, 1 - rank, rank), 0, 1)

  /** Says something, and waits until the server has closed the connection; what came meanwhile. */
  private def say(words: Socket => Unit): Seq[Byte] = {
    val socket = open()
    val heard = Seq.newBuilder[Byte]
    try {
      socket.setSoTimeout(20000)
      words(socket)
      socket.getOutputStream.flush()
      var byte = socket.getInputStream.read()
      while (byte >= 0) { heard += byte.toByte; byte = socket.getInputStream.read() }
    } catch { case _: IOException => () } // closed while we wrote: refused as well
    finally socket.close()
    heard.result()
  }

  /** The server's nonce. */
  private def challenge(socket: Socket): Array[Byte] = {
    val nonce = new Array[Byte](Handshake.NonceBytes)
    val in = new DataInputStream(socket.getInputStream)
    in.readFully(nonce)
    in.readFully(new Array[Byte](Handshake.ProofBytes))
    nonce
  }

  /** The client's side of an exchange: its proof, and what the server said to it. */
  private def proves(handshake: Handshake, hello: Array[Byte]): (Array[Byte], Seq[Byte]) = {
    var proof = Array.emptyByteArray
    val answer = say { socket =>
      socket.getOutputStream.write(hello)
      proof = handshake.clientProof(hello, challenge(socket))
      socket.getOutputStream.write(proof)
    }
    (proof, answer)
  }

  /** A rank's own hello and the proof that belongs to it, but of another connection than this one. */
  private def replays(genuine: Handshake, hello: Array[Byte]): Unit = {
    val recorded = open()
    val proof =
      try {
        recorded.setSoTimeout(20000)
        recorded.getOutputStream.write(hello)
        genuine.clientProof(hello, challenge(recorded))
      } finally recorded.close()
    val answer = replayed(hello, proof)
    require(answer.isEmpty, s"a recorded proof was answered by $answer")
  }

  /** What the server says to a hello and a proof that are sent again. */
  private def replayed(hello: Array[Byte], proof: Array[Byte]): Seq[Byte] = say { socket =>
    socket.getOutputStream.write(hello)
    challenge(socket)
    socket.getOutputStream.write(proof)
  }
}

private object Strangers {
  private val Fuzzed = 100

  /** Of the bytes that make no sense. None of these begins as TLS does, which would wait for more. */
  private val Seed = 1

  /** Those that a server must notice and refuse at least. */
  def attempts(encrypted: Boolean): Int = Fuzzed + (if (encrypted) 4 else 5)

  /** @param foreign of another run, with a certificate of its own where `own` has one */
  def connect(me: PushPeer, mailbox: Mailbox, own: RunSecret, foreign: RunSecret): Unit = {
    val genuine = new Handshake(own.key)
    val host = InetAddress.getByName(me.host)
    // In a session with TLS a stranger has not come as far as a proof.
    new Strangers(() => new Socket(host, me.port), mailbox).connect(Some(genuine).filter(_ => own.certificate.isEmpty))
    if (own.certificate.isDefined) {
      // Whoever he is, the certificate decides: the run's is let in, another run's is not, though he knows the secret.
      val welcome = new Strangers(() => TlsClient.open(own, host, me.port), mailbox).asks(genuine)
      require(welcome == Seq(TcpServer.Accepted), s"the run's own certificate was answered by $welcome")
      val refused = new Strangers(() => TlsClient.open(foreign, host, me.port), mailbox).asks(genuine)
      require(refused.isEmpty, s"another run's certificate was answered by $refused")
    }
  }
}

private object TlsClient {

  /** A connection of somebody who shows this secret's certificate and takes whatever the server shows. */
  def open(secret: RunSecret, host: InetAddress, port: Int): Socket = {
    val password = secret.key.map(byte => f"${byte & 0xff}%02x").mkString.toCharArray // as `TlsPair` has it
    val store = KeyStore.getInstance("PKCS12")
    store.load(new ByteArrayInputStream(secret.certificate.get), password)
    val keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm)
    keys.init(store, password)
    val context = SSLContext.getInstance("TLSv1.3")
    context.init(keys.getKeyManagers, Array[TrustManager](new Trusting), null)
    context.getSocketFactory.createSocket(host, port)
  }

  private final class Trusting extends X509TrustManager {
    override def checkClientTrusted(chain: Array[X509Certificate], kind: String): Unit = ()
    override def checkServerTrusted(chain: Array[X509Certificate], kind: String): Unit = ()
    override def getAcceptedIssuers(): Array[X509Certificate] = new Array[X509Certificate](0)
  }
}
