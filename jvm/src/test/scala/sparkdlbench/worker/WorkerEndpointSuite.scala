package sparkdlbench.worker

import org.scalatest.BeforeAndAfterEach
import sparkdlbench.OnOneLine
import sparkdlbench.common.{Facts, Json}
import sparkdlbench.train.{MeetingLeft, MeetingMessage, RankMeetings, RendezvousClient}

import java.net.UnixDomainSocketAddress
import java.nio.channels.SocketChannel
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.attribute.PosixFilePermissions
import java.nio.file.{Files, Path, Paths}
import java.nio.{ByteBuffer, ByteOrder}
import java.util.Random
import scala.collection.immutable.ListMap
import scala.jdk.CollectionConverters._

/** The executor's end without Spark: its driver is this process. */
class WorkerEndpointSuite extends OnOneLine with BeforeAndAfterEach {
  private var blocks: Path = _
  private var endpoint: WorkerEndpoint = _

  private val here = new DriverLink {
    override def rendezvous: RendezvousClient = new RendezvousClient {
      override def ask(message: MeetingMessage): Array[String] = RankMeetings.answer(message)
      override def tell(message: MeetingLeft): Unit = RankMeetings.answer(message): Unit
    }
    override def tell(message: WorkerMessage): Unit = Launches.deliver(message): Unit
    override def flush(request: WorkerFlush): Boolean = Launches.isOpen(request.launch)
  }

  override def beforeEach(): Unit = {
    blocks = Files.createTempDirectory("blockmgr-")
    endpoint = WorkerEndpoint.open(blocks, "here", here)
    Launches.open("launch")
  }

  override def afterEach(): Unit = {
    Launches.close("launch")
    endpoint.close()
    Files.delete(blocks)
  }

  /** A worker's end, byte by byte. */
  private final class Client extends AutoCloseable {
    private val announced =
      Json.read(new String(Files.readAllBytes(blocks.resolve(WorkerEndpoint.Announcement)), UTF_8))
    private val socket = SocketChannel.open(UnixDomainSocketAddress.of(announced.path("socket").asText))
    private val secret = announced.path("secret").asText.grouped(2).map(Integer.parseInt(_, 16).toByte).toArray

    def raw(bytes: Array[Byte]): this.type = {
      val buffer = ByteBuffer.wrap(bytes)
      try while (buffer.hasRemaining) socket.write(buffer)
      catch { case _: java.io.IOException => () } // closed by the other end already
      this
    }
    def greet(): this.type = raw(WorkerConnection.Magic ++ secret)
    def send(kind: Int, id: Long, body: Array[Byte], length: Option[Int] = None): this.type = {
      val head = ByteBuffer.allocate(16).order(ByteOrder.LITTLE_ENDIAN)
      head.putInt(length.getOrElse(body.length)).putInt(kind).putLong(id)
      raw(head.array ++ body)
    }
    def send(kind: Int, id: Long, words: String): this.type = send(kind, id, words.getBytes(UTF_8))
    def receive(): (Int, Long, String) = {
      val head = read(16)
      val (length, kind, id) = (head.getInt(), head.getInt(), head.getLong())
      (kind, id, new String(read(length).array, UTF_8))
    }
    def begin(rank: Int, size: Int = 2, attempt: Int = 0, launch: String = "launch"): this.type = {
      greet().send(WorkerConnection.BeginRank, 1, hello(rank, size, attempt, launch = launch))
      assert(receive()._1 == Answer.Done)
      this
    }

    /** Whether the other end has closed it; waits for that. */
    def isEnded: Boolean =
      try socket.read(ByteBuffer.allocate(1)) < 0
      catch { case _: java.io.IOException => true }

    private def read(count: Int): ByteBuffer = {
      val buffer = ByteBuffer.allocate(count).order(ByteOrder.LITTLE_ENDIAN)
      while (buffer.hasRemaining) assert(socket.read(buffer) >= 0, "the connection was closed")
      buffer.flip()
    }
    override def close(): Unit = socket.close()
  }

  private def hello(
      rank: Int,
      size: Int,
      attempt: Int,
      version: String = Facts.build("version"),
      launch: String = "launch"
  ): String = Json.line(
    ListMap[String, Any](
      "version" -> version,
      "launch" -> launch,
      "attempt" -> attempt,
      "rank" -> rank,
      "size" -> size,
      "pid" -> ProcessHandle.current.pid,
      "timeout_ms" -> 60000
    )
  )

  private def tell(kind: String, payload: String): Array[Byte] = {
    val name = kind.getBytes(UTF_8)
    ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(name.length).array ++ name ++ payload.getBytes(UTF_8)
  }

  private def told: Seq[(Int, String)] =
    Json
      .read(Launches.messages("launch", 20000))
      .asScala
      .toSeq
      .map(each => (each.path("rank").asInt, each.path("kind").asText))

  test("ranks tell in their order, and meet, each over a connection of its own") {
    val ranks = Seq(new Client().begin(0), new Client().begin(1))
    ranks.zipWithIndex.foreach { case (client, rank) =>
      client.send(WorkerConnection.Tell, 2, tell("first", "{}")).send(WorkerConnection.Flush, 3, "")
      assert(client.receive() == ((Answer.Done, 3L, "")))
      client.send(WorkerConnection.Meet, 4, s"text of $rank")
    }
    ranks.foreach(client => assert(client.receive() == ((Answer.Done, 4L, """["text of 0","text of 1"]"""))))
    assert(told.toSet == Set((0, "first"), (1, "first")))
    ranks.foreach(_.close())
    awaitSessions(0)
  }

  test("hostile bytes end their own connection, and no other") {
    val good = new Client().begin(0, size = 1)
    val random = new Random(7)
    def noise(length: Int) = { val bytes = new Array[Byte](length); random.nextBytes(bytes); bytes }
    val rank = WorkerConnection.BeginRank
    val attacks: Seq[Client => Any] = Seq(
      _.raw(noise(36)),
      _.raw(WorkerConnection.Magic ++ noise(32)),
      _.greet().send(rank, 1, Array.emptyByteArray, length = Some(-1)),
      _.greet().send(rank, 1, Array.emptyByteArray, length = Some(Int.MaxValue)),
      _.greet().send(rank, 1, Array.emptyByteArray, length = Some(FrameChannel.MostBody + 1)),
      _.greet().send(rank, 1, "{"),
      _.greet().send(rank, 1, "[" * 100000),
      _.greet().send(rank, 1, noise(1000)),
      _.greet().send(rank, 1, hello(rank = 5, size = 2, attempt = 0)),
      _.greet().send(rank, 1, hello(rank = -1, size = 2, attempt = 0)),
      _.greet().send(rank, 1, s"""{"version":"${Facts.build("version")}"}"""),
      _.greet().send(99, 1, hello(0, 1, 0)),
      _.begin(1).send(99, 2, ""),
      _.begin(1).send(WorkerConnection.Tell, 2, Array[Byte](1)),
      _.begin(1).send(WorkerConnection.Tell, 2, tell("kind", "no object")),
      _.begin(1).send(WorkerConnection.Tell, 2, tell("kind", "[]")),
      _.begin(1).send(WorkerConnection.Tell, 2, Array[Byte](-1, -1, -1, -1, 0)),
      _.begin(1).send(WorkerConnection.Tell, 2, Array[Byte](-1, -1, -1, 127, 0)),
      _.begin(1).raw(noise(64))
    )
    attacks.zipWithIndex.foreach { case (attack, number) =>
      val client = new Client
      attack(client)
      assert(client.isEnded, s"attack $number")
      client.close()
    }
    assert(endpoint.clock.getQueue.isEmpty, "what has ended holds memory")
    good.send(WorkerConnection.Tell, 2, tell("alive", "{}")).send(WorkerConnection.Meet, 3, "still")
    assert(good.receive() == ((Answer.Done, 3L, """["still"]""")))
    assert(told == Seq((0, "alive")))
    good.close()
    awaitSessions(0)
  }

  test("a worker of another version is told so") {
    val client = new Client().greet().send(WorkerConnection.BeginRank, 1, hello(0, 1, 0, version = "0.0.1"))
    val (kind, _, words) = client.receive()
    assert(kind == Answer.UserError && words.contains("0.0.1") && words.contains("Install both"), words)
    assert(client.isEnded)
    client.close()
  }

  test("a new connection of the same rank ends the one before, as a retried task needs") {
    val before = new Client().begin(0)
    val after = new Client().begin(0, attempt = 1)
    assert(before.isEnded)
    after.send(WorkerConnection.Flush, 2, "")
    assert(after.receive()._1 == Answer.Done)
    Seq(before, after).foreach(_.close())
    awaitSessions(0)
  }

  test("a connection of an earlier attempt is refused, and the newer one of its rank goes on") {
    val newer = new Client().begin(0, attempt = 1)
    val late = new Client().greet().send(WorkerConnection.BeginRank, 1, hello(0, size = 2, attempt = 0))
    val (kind, _, words) = late.receive()
    assert(kind == Answer.Failed && words.contains("earlier attempt") && words.contains("attempt 1"), words)
    assert(late.isEnded)
    newer.send(WorkerConnection.Flush, 2, "")
    assert(newer.receive()._1 == Answer.Done)
    Seq(newer, late).foreach(_.close())
    awaitSessions(0)
  }

  test("what fails at one connection ends neither the executor nor the next one") {
    val failures = Iterator[Throwable](
      new IllegalStateException("a bug"),
      new java.io.IOException("no descriptor"),
      new NoClassDefFoundError("a class"),
      new java.nio.channels.ClosedChannelException
    )
    var letIn = 0
    WorkerEndpoint.whileOpen(letIn < 2, "It could not be let in.") {
      if (letIn == 1 && failures.hasNext) throw failures.next()
      letIn += 1
    }
    assert(letIn == 2 && failures.isEmpty)
    val fatal = intercept[OutOfMemoryError](
      WorkerEndpoint.whileOpen(true, "It could not be let in.")(throw new OutOfMemoryError("for the test"))
    )
    assert(fatal.getMessage == "for the test")
  }

  test("the end of a process leaves the meetings that it waits in") {
    val waiting = new Client().begin(0)
    waiting.send(WorkerConnection.Meet, 2, "here")
    waiting.close()
    awaitSessions(0)
    val others = Seq(new Client().begin(0), new Client().begin(1))
    others.foreach(_.send(WorkerConnection.Meet, 2, "again"))
    others.foreach(client => assert(client.receive()._3 == """["again","again"]"""))
    others.foreach(_.close())
  }

  test("the end of a launch ends its ranks' connections") {
    Launches.open("another")
    val others = new Client().begin(0, launch = "another")
    val ranks = Seq(new Client().begin(0), new Client().begin(1))
    Launches.close("launch")
    ranks.foreach(rank => assert(rank.isEnded))
    others.send(WorkerConnection.Flush, 2, "")
    assert(others.receive()._1 == Answer.Done)
    Launches.close("another")
    assert(others.isEnded)
    (others +: ranks).foreach(_.close())
    awaitSessions(0)
  }

  test("modes, and nothing left after the end; an executor that was killed leaves nothing for long") {
    val folder = endpoint.socket.getParent
    def mode(path: Path) = PosixFilePermissions.toString(Files.getPosixFilePermissions(path))
    assert(mode(folder) == "rwx------" && mode(endpoint.socket) == "rw-------")
    assert(mode(blocks.resolve(WorkerEndpoint.Announcement)) == "rw-------")
    val client = new Client().begin(0)
    endpoint.close()
    assert(client.isEnded && !Files.exists(folder) && !Files.exists(blocks.resolve(WorkerEndpoint.Announcement)))
    client.close()
    val killed = Files.createTempDirectory(folder.getParent, "sparkdl-w-")
    Files.createFile(killed.resolve("s"))
    // A process that has ended: that number with another start.
    val mark = ".owner"
    endpoint = WorkerEndpoint.open(blocks, "here", here)
    val own = new String(Files.readAllBytes(endpoint.socket.resolveSibling(mark)), UTF_8)
    Files.write(killed.resolve(mark), own.replaceAll("\\d+$", "1").getBytes(UTF_8))
    val alive = endpoint.socket.getParent
    WorkerEndpoint.removeLeft() // as a driver does, which opens none
    assert(!Files.exists(killed) && Files.exists(alive))
    Files.createDirectory(killed)
    Files.write(killed.resolve(mark), own.replaceAll("\\d+$", "1").getBytes(UTF_8))
    endpoint.close()
    endpoint = WorkerEndpoint.open(blocks, "here", here)
    assert(!Files.exists(killed))
    assert(
      Paths.get(
        Json
          .read(new String(Files.readAllBytes(blocks.resolve(WorkerEndpoint.Announcement)), UTF_8))
          .path("socket")
          .asText
      ) == endpoint.socket
    )
  }

  test("a full letter box drops, counts and tells") {
    val box = new LetterBox("full", mostMessages = 2, mostChars = 1000)
    def message(rank: Int) = WorkerMessage("full", 0, rank, "here", "step", """{"a":1}""")
    (Seq(0, 1, 0, 0, 1).map(message)).foreach(box.put)
    val taken = Json.read(Json.line(box.take(0))).asScala.toSeq
    assert(
      taken.map(each => (each.path("rank").asInt, each.path("kind").asText, each.path("payload").toString)) ==
        Seq(
          (0, "step", """{"a":1}"""),
          (1, "step", """{"a":1}"""),
          (0, "dropped", """{"count":2}"""),
          (1, "dropped", """{"count":1}""")
        )
    )
    assert(box.take(0).isEmpty)
    box.put(message(0).copy(payload = s"""{"a":"${"x" * 2000}"}"""))
    assert(Json.line(box.take(0)).contains("dropped"))
  }

  test("what a rank prints does not crowd out how it ended") {
    val box = new LetterBox("full", mostMessages = 3, mostChars = 1000)
    val kinds = Seq("place") ++ Seq.fill(10)("log") ++ Seq("failed")
    kinds.foreach(kind => box.put(WorkerMessage("full", 0, 0, "here", kind, "{}")))
    val taken = Json.read(Json.line(box.take(0))).asScala.toSeq.map(_.path("kind").asText)
    assert(taken == Seq("place", "log", "log", "failed", "dropped"))
  }

  /** The threads of connections that were closed end on their own. */
  private def awaitSessions(count: Int): Unit = {
    val end = System.nanoTime() + 20000000000L
    while ((endpoint.openSessions != count || endpoint.openConnections != count) && System.nanoTime() < end)
      Thread.sleep(2)
    assert(endpoint.openSessions == count && endpoint.openConnections == count)
  }
}
