package sparkdlbench.transport.tcp

import io.netty.bootstrap.{Bootstrap, ServerBootstrap}
import io.netty.channel.{Channel, ChannelInitializer, ChannelOption, EventLoopGroup}
import io.netty.util.concurrent.Future
import org.apache.spark.internal.Logging
import org.apache.spark.sparkdlbench.{EventLoops, ExecutorAddress}
import sparkdlbench.common.{ConfigurationException, ProcessMark}
import sparkdlbench.config.Settings
import sparkdlbench.transport.GroupContext
import sparkdlbench.transport.push._

import java.io.IOException
import java.net.{BindException, InetAddress, InetSocketAddress}
import java.nio.file.Path
import java.util.concurrent.TimeUnit
import scala.annotation.tailrec
import scala.util.{Failure, Success, Try}

/**
 * Connections of our own between ranks: one server a rank, one or several connections from each rank to each. Native epoll where
 * Netty has it for this platform.
 *
 * @param number
 *   connections to each peer
 * @param addresses
 *   those that this host has
 */
final class TcpNetwork(
    group: GroupContext,
    choice: String,
    ports: PortRange,
    number: Int,
    tls: Option[TlsPair],
    addresses: () => Seq[HostAddress] = () => Interfaces.all
) extends PushNetwork
    with Logging {
  import TcpNetwork._
  private val handshake = new Handshake(group.secret.key)
  private val loops: EventLoopGroup = EventLoops.group(1, s"sparkdl-tcp-${group.rank}")
  private val server = new TcpServer(group.rank, handshake, () => (1 + listening.size) * group.size, tls)
  private val executor = ExecutorAddress.here
  @volatile private var listening = Seq.empty[(HostAddress, Channel)]

  override def channel: String = "tcp"
  override def hostLocal(settings: Settings): String = "off"
  override def progress(settings: Settings): String = settings(Progress.key)
  override def congestion(settings: Settings): String = settings(Congestion.key)
  override def rankLoop(): Option[RankLoop] = EventLoops.rankLoop()
  override def obstacle: Option[String] = None
  override def sharedDirectories: Seq[Path] = Nil

  override def facts: Map[String, String] =
    listening.headOption.map { case (address, _) => "tcp.interface" -> address.toString }.toMap

  /** Connections that this rank's server has refused so far. */
  def refused: Long = server.refused

  override def describe(rank: Int): PushPeer = {
    val (address, channel) = if (listening.isEmpty) open() else listening.head
    val encrypted = tls.isDefined
    PushPeer(
      rank,
      address.text,
      port(channel),
      executor.id,
      PushPeer.thisProcess,
      ProcessMark.kernel,
      encrypted
    )
  }

  /** Listens, and agrees with the others on the one address of this rank that all of them reach. */
  private def open(): (HostAddress, Channel) = {
    listen()
    val offers = group
      .allGather(Offer.print(PushPeer.thisProcess, listening.map(one => endpoint(one._1, one._2))))
      .map(Offer.parse)
    val chosen = if (offers.forall(_.endpoints.size == 1)) 0 else agree(offers)
    listening.zipWithIndex.filter(_._2 != chosen).foreach(_._1._2.close())
    listening = Seq(listening(chosen))
    val (address, channel) = listening.head
    logInfo(
      s"Rank ${group.rank} takes messages at ${endpoint(address, channel)}, interface ${address.interface} (tcp.interface = $choice)."
    )
    listening.head
  }

  /**
   * At all addresses that fit. Those at which this process cannot listen (an IPv6 address may be such a one for a while) are left out where
   * there are others. Where there is none it looks again for a while, because an attempt that is just ending may still hold the ports, and
   * the training is not submitted again after a ConfigurationException.
   */
  private def listen(): Unit = {
    val deadline = System.nanoTime() + math.min(group.timeoutMillis, ListenMillis) * 1000000L
    var tried = bindAll()
    while (tried.forall(_._2.isFailure) && System.nanoTime() < deadline && !group.isKilled) {
      Thread.sleep(ListenAgainMillis)
      tried = bindAll()
    }
    listening = tried.collect { case (address, Success(bound)) => (address, bound) }
    val failed = tried.collect { case (address, Failure(cause)) => s"$address: ${cause.getMessage}" }
    if (listening.isEmpty)
      throw new ConfigurationException(
        s"Rank ${group.rank} found no free port among tcp.ports = $ports (${failed.mkString("; ")}). Each rank of a host needs one; give a " +
          "larger range, or 0 for any free port, or set tcp.interface to an address at which it can listen."
      )
    failed.foreach(why => logWarning(s"Rank ${group.rank} cannot take messages at one of its addresses, $why."))
  }

  private def bindAll(): Seq[(HostAddress, Try[Channel])] =
    Interfaces.matching(choice, executor.host, addresses()).map(address => (address, bind(address.address)))

  /** Every rank connects to every address of every other, at all of them at once; the first of mine that all of them reached. */
  private def agree(offers: IndexedSeq[Offer]): Int = {
    val self = offers(group.rank).process
    val attempts = for {
      rank <- offers.indices if offers(rank).process != self
      (at, index) <- offers(rank).endpoints.zipWithIndex
    } yield (rank, index) -> Try(attempt(at, StreamId(0, group.rank, rank), 0, 1, ProbeMillis))
    val deadline = System.nanoTime() + (ProbeMillis + EachProbeMillis * attempts.size) * 1000000L
    val answered = attempts.collect {
      case ((rank, index), begun) if isAnswered(begun, offers(rank).endpoints(index), rank, deadline) => (rank, index)
    }.toSet
    val reached = offers.indices.map { rank =>
      offers(rank).endpoints.indices.filter(index => offers(rank).process == self || answered((rank, index))).toSet
    }
    val all = group.allGather(Offer.printReached(reached)).map(Offer.parseReached)
    val mine = offers(group.rank).endpoints
    mine.indices.find(index => all.forall(_(group.rank).contains(index))).getOrElse {
      val missing = mine.indices.map { index =>
        s"${mine(index)} not from ${all.indices.filterNot(rank => all(rank)(group.rank).contains(index)).map(rank => s"rank $rank").mkString(", ")}"
      }
      throw new ConfigurationException(
        s"No address of rank ${group.rank} on host ${executor.host} can be reached by every rank: ${missing.mkString("; ")}. Set tcp.interface " +
          "to the interface or subnet that the hosts share, open tcp.ports in their firewalls, or use block-stream, which needs no port of its own."
      )
    }
  }

  override def connect(
      peer: PushPeer,
      id: StreamId,
      onFailure: Throwable => Unit,
      onDrained: () => Unit
  ): PushChannel = {
    val endpoint = Endpoint(peer.host, peer.port)
    val connections = (0 until number).map { one =>
      enter(endpoint, id, one, number, System.nanoTime() + group.timeoutMillis * 1000000L)
    }
    val channels = connections.map(new TcpChannel(_, onFailure, onDrained))
    if (number == 1) channels.head else new Striped(channels)
  }

  /**
   * A connection of a stream. A server that strangers besiege turns ranks away as well, since it cannot know them before they have proved who
   * they are: a rank that is refused connects again, less and less often, while there is time.
   */
  private def enter(endpoint: Endpoint, id: StreamId, which: Int, of: Int, deadline: Long): Channel = {
    @tailrec
    def after(pauseMillis: Long): Channel = {
      val leftMillis = math.max(1L, (deadline - System.nanoTime()) / 1000000L)
      Try(attempt(endpoint, id, which, of, leftMillis).channel(deadline)) match {
        case Success(channel) => channel
        case Failure(_: HandshakeRefused) if pauseMillis < leftMillis && !group.isKilled =>
          Thread.sleep(pauseMillis)
          after(math.min(2 * pauseMillis, HandshakeRetryMillisAtMost))
        case Failure(cause) => throw cause
      }
    }
    after(HandshakeRetryMillis)
  }

  private def isAnswered(begun: Try[ConnectionAttempt], endpoint: Endpoint, rank: Int, deadline: Long): Boolean =
    begun
      .flatMap(attempt => Try(attempt.channel(deadline)))
      .recoverWith { case _: HandshakeRefused => Try(enter(endpoint, StreamId(0, group.rank, rank), 0, 1, deadline)) }
      .map(_.close())
      .isSuccess

  /** Begins to connect. @param timeoutMillis until the connection stands, without the handshake */
  private def attempt(endpoint: Endpoint, id: StreamId, which: Int, of: Int, timeoutMillis: Long): ConnectionAttempt = {
    val greeting =
      new ClientHandshake(handshake, handshake.hello(id, which, of), endpoint, loops.next().newPromise[Channel]())
    val millis = math.min(timeoutMillis, Int.MaxValue.toLong)
    val bootstrap = new Bootstrap()
      .group(loops)
      .channel(EventLoops.clientChannel)
      .option(ChannelOption.TCP_NODELAY, java.lang.Boolean.TRUE)
      .option(ChannelOption.CONNECT_TIMEOUT_MILLIS, Integer.valueOf(millis.toInt))
      .handler(new ChannelInitializer[Channel] {
        override def initChannel(channel: Channel): Unit = {
          tls.foreach(pair => channel.pipeline().addLast(pair.client(channel.alloc())))
          channel.pipeline().addLast(greeting): Unit
        }
      })
    val connecting = bootstrap.connect(InetAddress.getByName(endpoint.host), endpoint.port)
    connecting.addListener { (future: io.netty.util.concurrent.Future[Void]) =>
      if (!future.isSuccess) greeting.promise.tryFailure(future.cause): Unit
    }
    new ConnectionAttempt(endpoint, connecting.channel(), greeting.promise)
  }

  /** The first of the ports that is free there, or why the last one was not. */
  private def bind(address: InetAddress): Try[Channel] = {
    val bootstrap = new ServerBootstrap()
      .group(loops)
      .channel(EventLoops.serverChannel)
      .option(ChannelOption.SO_BACKLOG, Integer.valueOf(1024))
      .childOption(ChannelOption.TCP_NODELAY, java.lang.Boolean.TRUE)
      .childHandler(server)
    val left = ports.ports.iterator
    var bound: Try[Channel] = Failure(new BindException("there is no port"))
    while (bound.isFailure && left.hasNext) {
      bound = Try(bootstrap.bind(address, left.next()).syncUninterruptibly().channel())
      bound.failed.filter(!_.isInstanceOf[IOException]).foreach(throw _)
    }
    bound
  }

  private def endpoint(address: HostAddress, channel: Channel): Endpoint = Endpoint(address.text, port(channel))

  private def port(channel: Channel): Int = channel.localAddress().asInstanceOf[InetSocketAddress].getPort

  override def close(): Unit = {
    listening.foreach(_._2.close())
    server.leave()
    loops.shutdownGracefully(0, CloseMillis, TimeUnit.MILLISECONDS): Unit
  }
}

private[tcp] object TcpNetwork {
  val ProbeMillis = 3000L

  /** More for each of them, since one thread makes them all. */
  val EachProbeMillis = 20L
  val CloseMillis = 3000L

  /** How long to look for a free port; longer than a rank takes to close. */
  val ListenMillis = 10000L
  val ListenAgainMillis = 200L

  /** Pauses before a rank that was refused connects again: the first, and the longest. */
  val HandshakeRetryMillis = 50L
  val HandshakeRetryMillisAtMost = 1000L
}

/** A connection that is being made. */
private[tcp] final class ConnectionAttempt(endpoint: Endpoint, connecting: Channel, entered: Future[Channel]) {

  /** Waits for it until `deadline`, of `System.nanoTime`; closes it where it fails. */
  def channel(deadline: Long): Channel = {
    val since = System.nanoTime()
    try {
      if (!entered.await(math.max(0L, deadline - since), TimeUnit.NANOSECONDS))
        throw new IOException(s"$endpoint did not answer in time")
      if (!entered.isSuccess) throw entered.cause
      entered.getNow
    } catch { case error: Throwable => connecting.close(); throw error }
  }
}
