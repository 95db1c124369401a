package sparkdlbench.worker

import org.apache.spark.SparkEnv
import org.apache.spark.internal.Logging
import org.apache.spark.sparkdlbench.SparkFacts
import sparkdlbench.algorithm.SyncSgd
import sparkdlbench.collective.Collective
import sparkdlbench.config.RunKeys
import sparkdlbench.common.{ConfigurationException, Facts, Json, Outcome, RunFailedException}
import sparkdlbench.transport.Transport
import sparkdlbench.transport.push.Progress

import com.fasterxml.jackson.databind.JsonNode

import java.io.{EOFException, IOException}
import java.nio.channels.{ClosedChannelException, SocketChannel}
import java.nio.charset.StandardCharsets.{US_ASCII, UTF_8}
import java.nio.file.{Files, Paths}
import java.nio.{BufferUnderflowException, ByteBuffer}
import java.security.MessageDigest
import java.util.concurrent.{CompletableFuture, ExecutionException, TimeUnit}
import scala.collection.immutable.ListMap
import scala.util.{Failure, Success, Try}

/**
 * One connection of a Python process, served by one thread. It begins with `Magic` and the secret; the first request says what the
 * connection is for. `python/sparkdl_bench/worker/_wire.py` is the other end.
 */
private[worker] final class WorkerConnection(channel: SocketChannel, endpoint: WorkerEndpoint)
    extends Logging
    with AutoCloseable {
  import WorkerConnection._
  private val wire = new FrameChannel(channel)
  @volatile private var isClosed = false

  def run(): Unit =
    try {
      val patience = endpoint.clock.schedule((() => close()): Runnable, GreetingSeconds, TimeUnit.SECONDS)
      val first =
        try { greet(); wire.read() }
        finally patience.cancel(false): Unit
      begin(first)
    } catch {
      case _: EOFException | _: ClosedChannelException => () // it has left
      case hostile: ProtocolException =>
        logWarning(s"A connection to the endpoint for Python workers was closed: ${hostile.getMessage}.")
      case _: BufferUnderflowException =>
        logWarning("A connection to the endpoint for Python workers was closed: a request is too short.")
      case broken: IOException => logInfo(s"A Python worker's connection broke: ${broken.getMessage}")
    } finally close()

  private def greet(): Unit = {
    val greeting = wire.bytes(Magic.length + WorkerEndpoint.SecretBytes)
    // Compared as a whole, in constant time: nobody learns how much of a guess was right.
    if (!MessageDigest.isEqual(greeting, Magic ++ endpoint.secret))
      throw new ProtocolException("it does not know the secret")
  }

  private def begin(first: Frame): Unit = {
    val words = jsonOf(first)
    Outcome.of {
      checkVersion(words)
      first.kind match {
        case BeginRank => beginRank(words)
        case BeginGroup => beginGroup(words)
        case BeginMessages => beginMessages(words)
        case BeginRows => beginRows(words)
        case other => throw new ProtocolException(s"it begins with the unknown request $other")
      }
    } match {
      case Success(serve) => serve(first.id)
      case Failure(hostile: ProtocolException) => throw hostile
      case Failure(error) => refuse(first.id, error)
    }
  }

  private def checkVersion(words: JsonNode): Unit = {
    val ours = Facts.build.getOrElse("version", "")
    val theirs = words.path("version").asText("")
    if (theirs != ours)
      throw new ConfigurationException(
        s"The jar of sparkdl-bench in the executor on host ${endpoint.host} is of version $ours, and the Python package of its worker of version $theirs. Install both " +
          "from one version."
      )
  }

  private def beginRank(words: JsonNode): Long => Unit = {
    val session = new WorkerSession(
      text(words, "launch"),
      whole(words, "attempt", 0, Int.MaxValue),
      whole(words, "rank", 0, whole(words, "size", 1, MostRanks) - 1),
      whole(words, "size", 1, MostRanks),
      words.path("pid").asLong(-1),
      endpoint.host,
      whole(words, "timeout_ms", 1, Int.MaxValue).toLong,
      endpoint.driver
    )
    id =>
      Outcome.of(endpoint.add(session)) match {
        case Failure(error) => refuse(id, error)
        case Success(number) =>
          try {
            session.own(this)
            answer(id, Json.line(ListMap[String, Any]("session" -> number, "host" -> endpoint.host)))
            while (true) control(session, wire.read())
          } finally {
            session.close()
            endpoint.remove(number)
          }
      }
  }

  private def beginGroup(words: JsonNode): Long => Unit = {
    val session = sessionOf(words)
    val plan = GroupPlan.of(words, session)
    session.own(this) // from now on it ends with the rank
    val opened = Outcome.of {
      val topology = plan.topology
      val context = new WorkerGroupContext(session, plan, () => isClosed)
      val (transport, collective) = context.connect(Collective.open(_))
      new GroupOperations(session.pid, transport, collective, topology, plan.settings(SyncSgd.bucketBytes))
    }
    if (opened.isFailure) session.disown(this)
    val operations = opened.get
    id =>
      try {
        val facts = ListMap[String, Any]("transport" -> plan.settings(RunKeys.transport))
        // By which Python may say on which core it is to run.
        answer(id, Json.line(facts ++ WorkerConnection.ownThread.map("thread" -> _)))
        var usable = true
        while (usable) usable = operate(operations, wire.read())
      } finally {
        session.disown(this)
        operations.close()
      }
  }

  /** The messages of a group; the thread that has their transport is another one. */
  private def beginMessages(words: JsonNode): Long => Unit = {
    val session = sessionOf(words)
    val whole = GroupPlan.of(words, session)
    // They move while the rank's own thread does something else.
    val plan = whole.copy(
      name = s"${whole.name}/messages",
      settings = whole.settings.updated(Progress.key, "network")
    )
    val messages = new GroupMessages(session.pid, plan.timeoutMillis, () => session.isClosed, wire.write)
    val opened = new CompletableFuture[Transport]
    id => {
      session.own(this)
      val server = WorkerEndpoint.start(s"sparkdl-worker-messages-${session.rank}")(
        Outcome.of {
          val context = new WorkerGroupContext(session, plan, () => isClosed)
          messages.serve(context.connect(_), opened.complete(_): Unit)
        } match {
          case Failure(error) if opened.completeExceptionally(error) => () // the other thread tells
          case _ => close()
        }
      )
      try
        Outcome.of(opened.get()) match {
          case Failure(failed: ExecutionException) => refuse(id, failed.getCause)
          case Failure(error) => throw error
          case Success(transport) =>
            answer(id, "{}")
            while (true) messages.take(wire.read(), transport.rank, transport.size)
        }
      finally {
        messages.end()
        server.join(JoinMillis)
        session.disown(this)
      }
    }
  }

  private def beginRows(words: JsonNode): Long => Unit = {
    val session = sessionOf(words)
    val rows = new WorkerRows(session, words, SparkFacts.hadoop(SparkEnv.get.conf))
    session.own(this)
    id =>
      try {
        answer(id, rows.about)
        while (true) {
          val request = wire.read()
          Outcome.of(rows.run(request)) match {
            case Success(body) => wire.write(Answer.Done, request.id, body)
            case Failure(hostile @ (_: ProtocolException | _: BufferUnderflowException)) => throw hostile
            case Failure(error) => refuse(request.id, error)
          }
        }
      } finally {
        session.disown(this)
        rows.close()
      }
  }

  /** Whether the group can be used any more. */
  private def operate(operations: GroupOperations, request: Frame): Boolean =
    Outcome.of(operations.run(request)) match {
      case Success(_) =>
        wire.write(Answer.Done, request.id, Array.emptyByteArray)
        true
      case Failure(refused: ConfigurationException) =>
        refuse(request.id, refused)
        true
      case Failure(hostile @ (_: ProtocolException | _: BufferUnderflowException)) => throw hostile
      case Failure(error) =>
        refuse(request.id, error)
        false
    }

  private def sessionOf(words: JsonNode): WorkerSession = endpoint
    .session(words.path("session").asLong(0))
    .getOrElse(
      throw new ConfigurationException(
        "The rank that this group is for has closed its endpoint. Connect again in each task."
      )
    )

  private def control(session: WorkerSession, request: Frame): Unit = request.kind match {
    case Tell =>
      val kind = stringOf(request.body, request.body.getInt())
      val payload = stringOf(request.body, request.body.remaining)
      if (!parsed(payload).isObject) throw new ProtocolException("it tells something else than a JSON object")
      session.tell(kind, payload)
    case Flush =>
      answered(request.id) {
        session.driver.flush(WorkerFlush(session.launch)): Unit
        ""
      }
    case Meet =>
      // In a thread of its own: this one hears at once when the process is gone.
      val text = stringOf(request.body, request.body.remaining)
      WorkerEndpoint.start(s"sparkdl-worker-meet-${session.rank}")(
        answered(request.id)(Json.line(session.meet(text)))
      ): Unit
    case Save => aside(session, request)(filesOf(session).save(_))
    case Newest => aside(session, request)(filesOf(session).newest(_))
    case Load => aside(session, request)(filesOf(session).load(_))
    case other => throw new ProtocolException(s"request $other is unknown")
  }

  private def filesOf(session: WorkerSession) =
    new WorkerFiles(session.pid, SparkFacts.hadoop(SparkEnv.get.conf), () => session.isClosed)

  /** In a thread of its own: this one hears at once when the process is gone. */
  private def aside(session: WorkerSession, request: Frame)(work: JsonNode => String): Unit = {
    val words = jsonOf(request)
    WorkerEndpoint.start(s"sparkdl-worker-files-${session.rank}")(answered(request.id)(work(words))): Unit
  }

  /** Sends what came of `work`. */
  private def answered(id: Long)(work: => String): Unit = Outcome.of(work) match {
    case Success(words) => answer(id, words)
    case Failure(error) => refuse(id, error)
  }

  private def answer(id: Long, words: String): Unit =
    // It may have left meanwhile; then the thread that reads finds that out.
    try wire.write(Answer.Done, id, words.getBytes(UTF_8))
    catch { case _: IOException => () }

  private def refuse(id: Long, error: Throwable): Unit = {
    val (kind, words) = reason(error)
    if (kind == Answer.Bug) logWarning("A request of a Python worker failed.", error)
    Try(wire.write(kind, id, words.getBytes(UTF_8))): Unit
  }

  override def close(): Unit = {
    isClosed = true
    wire.close()
  }
}

private[worker] object WorkerConnection {
  val Magic: Array[Byte] = "SDLW".getBytes(US_ASCII)
  private val GreetingSeconds = 10L
  private val MostRanks = 1 << 20
  private val JoinMillis = 5000L

  // What a connection is for, in its first request: JSON.
  val BeginRank = 1

  /** A group's operations. */
  val BeginGroup = 2

  /** Messages between two ranks of a group. */
  val BeginMessages = 3

  /** A rank's batches of a decoded set. */
  val BeginRows = 4

  // Of a rank's first connection.

  /** int32 length of the kind, the kind, the payload (JSON). No answer. */
  val Tell = 10

  /** Nothing; answered when the driver has all that was told. */
  val Flush = 11

  /** The rank's text; answered with a JSON list of all ranks' texts. */
  val Meet = 12

  /** JSON, as the two that follow: folder, descriptor of the memory, how many to keep. Answered with the number. */
  val Save = 13

  /** Folder. Answered with number and bytes of the newest checkpoint, or with an empty object. */
  val Newest = 14

  /** Folder, number, descriptor of memory that is long enough. */
  val Load = 15

  /** The calling thread's number at the kernel. */
  private def ownThread: Option[Int] =
    Try(Files.readSymbolicLink(Paths.get("/proc/thread-self")).getFileName.toString.toInt).toOption

  private[worker] def reason(error: Throwable): (Int, String) = error match {
    case error: ConfigurationException => (Answer.UserError, error.getMessage)
    case failed: RunFailedException => (Answer.Failed, failed.getMessage)
    case bug => (Answer.Bug, bug.toString)
  }

  private[worker] def stringOf(body: ByteBuffer, length: Int): String = {
    if (length < 0 || length > body.remaining) throw new ProtocolException(s"a text of $length bytes is announced")
    val bytes = new Array[Byte](length)
    body.get(bytes)
    new String(bytes, UTF_8)
  }

  private[worker] def jsonOf(request: Frame): JsonNode = parsed(stringOf(request.body, request.body.remaining))

  private def parsed(text: String): JsonNode =
    Try(Json.read(text)).getOrElse(throw new ProtocolException("what should be JSON is none"))

  private[worker] def text(words: JsonNode, field: String): String = {
    val value = words.path(field)
    if (!value.isTextual) throw new ProtocolException(s"'$field' is no text")
    value.asText
  }

  private[worker] def whole(words: JsonNode, field: String, least: Int, most: Int): Int = {
    val value = words.path(field)
    if (!value.isInt || value.asInt < least || value.asInt > most)
      throw new ProtocolException(s"'$field' is no whole number from $least to $most")
    value.asInt
  }
}
