package sparkdlbench.worker
package fuzz

import sparkdlbench.common.{Facts, Json, RunFailedException}
import sparkdlbench.fuzz.FuzzTarget
import sparkdlbench.train.{MeetingLeft, MeetingMessage, RendezvousClient}
import sparkdlbench.transport.RunSecret

import java.net.UnixDomainSocketAddress
import java.nio.channels.{ServerSocketChannel, SocketChannel}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.{ByteBuffer, ByteOrder}

/** A process at the socket for Python workers; an input of odd length has no secret. */
object WorkerSocketFuzz extends FuzzTarget("worker-socket") {
  private val driver = new DriverLink {
    override def rendezvous: RendezvousClient = new RendezvousClient {
      override def ask(message: MeetingMessage): Array[String] = throw new RunFailedException("there is no driver")
      override def tell(message: MeetingLeft): Unit = ()
    }
    override def tell(message: WorkerMessage): Unit = ()
    override def flush(request: WorkerFlush): Boolean = true
  }
  private lazy val endpoint = WorkerEndpoint.open(FuzzTarget.folder(), "here", driver)
  private lazy val address = UnixDomainSocketAddress.of(FuzzTarget.folder().resolve("s"))
  private lazy val server = {
    val open = ServerSocketChannel.open(java.net.StandardProtocolFamily.UNIX)
    open.bind(address)
  }

  private def frame(kind: Int, words: Array[Byte]): Array[Byte] = ByteBuffer
    .allocate(FrameChannel.HeadBytes + words.length)
    .order(ByteOrder.LITTLE_ENDIAN)
    .putInt(words.length)
    .putInt(kind)
    .putLong(1)
    .put(words)
    .array

  private val hello = Json.fields(
    "version" -> Facts.build.getOrElse("version", ""),
    "launch" -> "l",
    "attempt" -> 0,
    "rank" -> 0,
    "size" -> 2,
    "pid" -> 1,
    "timeout_ms" -> 1
  )
  private def tell =
    ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(3).array ++ "out{\"a\":1}".getBytes(UTF_8)

  def seeds: Seq[Array[Byte]] = {
    val good =
      frame(WorkerConnection.BeginRank, Json.line(hello).getBytes(UTF_8)) ++ frame(WorkerConnection.Tell, tell) ++
        frame(WorkerConnection.Flush, Array.emptyByteArray)
    val group = frame(
      WorkerConnection.BeginGroup,
      Json.line(hello ++ Json.fields("session" -> 1, "ranks" -> Seq(0))).getBytes(UTF_8)
    )
    Seq(good, group)
  }

  protected def read(input: Array[Byte]): Unit = {
    val listening = server
    val client = SocketChannel.open(address)
    val accepted = listening.accept()
    try {
      val secret = if (input.length % 2 == 0) endpoint.secret else new Array[Byte](endpoint.secret.length)
      val bytes = ByteBuffer.wrap(WorkerConnection.Magic ++ secret ++ input.take(WorkerSocketFuzz.Most))
      while (bytes.hasRemaining) client.write(bytes)
      client.shutdownOutput()
      new WorkerConnection(accepted, endpoint).run()
    } finally {
      client.close()
      accepted.close()
    }
  }

  /** What a socket takes without being read. */
  private val Most = 32 << 10
}

/** The group's secret, as its first rank tells the others. */
object GroupSecretFuzz extends FuzzTarget("group-secret") {
  def seeds: Seq[Array[Byte]] = Seq(WorkerGroupContext.print(RunSecret.random()).getBytes(UTF_8))
  protected def read(input: Array[Byte]): Unit = WorkerGroupContext.parse(new String(input, UTF_8)): Unit
}
