package sparkdlbench.worker

import org.apache.spark.internal.Logging
import sparkdlbench.common.{Facts, Json, MappedFile, RunFailedException}

import java.io.IOException
import java.net.{StandardProtocolFamily, UnixDomainSocketAddress}
import java.nio.channels.{ClosedChannelException, ServerSocketChannel, SocketChannel}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.attribute.PosixFilePermissions.{asFileAttribute, fromString}
import java.nio.file.{Files, Path, Paths, StandardCopyOption}
import java.security.SecureRandom
import java.util.concurrent.{ConcurrentHashMap, ScheduledThreadPoolExecutor}
import scala.collection.immutable.ListMap
import scala.jdk.CollectionConverters._
import scala.util.Try
import scala.util.control.NonFatal

/**
 * Where the Python workers of an executor reach its JVM: a Unix domain socket that only processes of the same user which know a secret can
 * use. Both stand in a file in the executor's own folder of blocks, which Spark tells its Python workers. A connection has a thread
 * of its own.
 */
private[sparkdlbench] final class WorkerEndpoint private (
    folder: Path,
    server: ServerSocketChannel,
    announced: Path,
    val secret: Array[Byte],
    val host: String,
    val driver: DriverLink
) extends Logging
    with AutoCloseable {
  private val connections = ConcurrentHashMap.newKeySet[WorkerConnection]()
  private val sessions = new ConcurrentHashMap[Long, WorkerSession]()
  private val numbers = new SecureRandom
  private[worker] val socket: Path = folder.resolve(WorkerEndpoint.Socket)

  /** Ends what waits too long for a first word. */
  private[worker] val clock: ScheduledThreadPoolExecutor = {
    val clock = new ScheduledThreadPoolExecutor(
      1,
      (work: Runnable) => {
        val thread = new Thread(work, "sparkdl-worker-clock")
        thread.setDaemon(true)
        thread
      }
    )
    // Else each connection's memory would be held until its time is over, though it has long ended.
    clock.setRemoveOnCancelPolicy(true)
    clock
  }
  private val owner = Files.getOwner(socket).getName

  /** An executor that is told to end may be gone before its plugin was closed. */
  private val atExit = new Thread(() => remove(), "sparkdl-worker-exit")
  Runtime.getRuntime.addShutdownHook(atExit)
  WorkerEndpoint.start("sparkdl-worker-accept")(accept())
  WorkerEndpoint.start("sparkdl-worker-launches")(endWithLaunches())

  private def accept(): Unit =
    WorkerEndpoint.whileOpen(server.isOpen, "A Python worker could not be let in.")(begin(server.accept()))

  /** Ends the sessions of launches that are over: their ranks learn so at once, whatever they do. */
  private def endWithLaunches(): Unit = WorkerEndpoint.whileOpen(
    server.isOpen,
    "The Python workers of a launch that is over may not have been told so; they are told at the next look."
  ) {
    Thread.sleep(WorkerEndpoint.LookMillis)
    val launches = sessions.values.asScala.toList.groupBy(_.launch)
    launches.foreach { case (launch, ranks) =>
      // A driver that does not answer is gone, or busy: Spark itself finds out which.
      if (!Try(driver.flush(WorkerFlush(launch))).getOrElse(true)) ranks.foreach(_.close())
    }
  }

  private def begin(channel: SocketChannel): Unit = {
    val connection = new WorkerConnection(channel, this)
    try
      if (connections.size >= WorkerEndpoint.MostConnections || !isOurs(channel)) connection.close()
      else {
        connections.add(connection)
        WorkerEndpoint.start("sparkdl-worker") {
          try connection.run()
          finally connections.remove(connection): Unit
        }
      }
    catch {
      case error: Throwable => // the worker at its other end must not wait for an answer
        connections.remove(connection)
        Try(connection.close())
        throw error
    }
  }

  /** The folder's mode keeps others away already; where the JDK knows the peer's user it is compared, too. */
  private def isOurs(channel: SocketChannel): Boolean =
    try channel.getOption(jdk.net.ExtendedSocketOptions.SO_PEERCRED).user.getName == owner
    catch { case _: UnsupportedOperationException => true }

  /**
   * The session's number, of which only its rank knows. One of an earlier attempt of the same rank ends, and so does an earlier connection of this attempt.
   *
   * @throws sparkdlbench.common.RunFailedException
   *   a later attempt has the rank: this one is of a task that has not heard of its end
   */
  private[worker] def add(session: WorkerSession): Long = {
    val number = numbers.nextLong()
    val before = sessions.synchronized {
      val same =
        sessions.values.asScala.filter(each => each.launch == session.launch && each.rank == session.rank).toList
      same.find(_.attempt > session.attempt).foreach { newer =>
        throw new RunFailedException(
          s"A Python process asks to be $session, and $newer is here already: the process belongs to a task of an earlier attempt that has not heard of " +
            "its end. It is refused, and the newer attempt goes on; valid is an attempt that is no earlier. End that task."
        )
      }
      sessions.put(number, session)
      same
    }
    before.foreach(each => Try(each.close()))
    number
  }

  private[worker] def remove(number: Long): Unit = sessions.remove(number): Unit

  private[worker] def session(number: Long): Option[WorkerSession] = Option(sessions.get(number)).filterNot(_.isClosed)

  private[worker] def openConnections: Int = connections.size

  private[worker] def openSessions: Int = sessions.size

  override def close(): Unit = {
    Try(server.close())
    connections.asScala.foreach(each => Try(each.close()))
    sessions.values.asScala.foreach(each => Try(each.close()))
    clock.shutdownNow()
    remove()
    Try(Runtime.getRuntime.removeShutdownHook(atExit)): Unit // not while the JVM ends
  }

  private def remove(): Unit =
    Seq(announced, socket, folder.resolve(MappedFile.Owner), folder).foreach(file => Try(Files.deleteIfExists(file)))
}

private[sparkdlbench] object WorkerEndpoint extends Logging {

  /** The file that tells Python workers of the endpoint. */
  val Announcement = "sparkdl-worker.json"
  private val Prefix = "sparkdl-w-"
  private[worker] val Socket = "s"
  private[worker] val SecretBytes = 32
  private val MostConnections = 4096
  private val RetryMillis = 100L

  /** Between two looks whether the launches go on. */
  private val LookMillis = 500L

  /** Of the name that a new folder gets. */
  private val MostDigits = 20

  /** Of the path of a Unix domain socket, in bytes, without the zero at its end. */
  private val MostPathBytes = 107

  /**
   * Opens one and announces it. What executors that were killed have left is removed.
   *
   * @param blocks
   *   the executor's own folder of blocks
   */
  def open(blocks: Path, host: String, driver: DriverLink): WorkerEndpoint = {
    val folder = newFolder()
    try {
      MappedFile.own(folder)
      val server = ServerSocketChannel.open(StandardProtocolFamily.UNIX)
      try {
        val socket = folder.resolve(Socket)
        server.bind(UnixDomainSocketAddress.of(socket))
        Files.setPosixFilePermissions(socket, fromString("rw-------"))
        val secret = new Array[Byte](SecretBytes)
        new SecureRandom().nextBytes(secret)
        val announced = announce(blocks, socket, secret)
        new WorkerEndpoint(folder, server, announced, secret, host, driver)
      } catch { case error: Throwable => server.close(); throw error }
    } catch {
      case error: Throwable =>
        Seq(folder.resolve(Socket), folder.resolve(MappedFile.Owner), folder).foreach(file =>
          Try(Files.deleteIfExists(file))
        )
        throw error
    }
  }

  /** Removes what executors of this host that were killed have left. */
  def removeLeft(): Unit = parents.foreach(MappedFile.removeLeftFolders(_, Prefix))

  /** Folders for temporary files whose names are short enough for a socket's path. */
  private def parents: Seq[Path] =
    Seq(System.getProperty("java.io.tmpdir"), "/tmp").distinct.map(Paths.get(_)).filter { parent =>
      val longest = parent.resolve(Prefix + "9" * MostDigits).resolve(Socket).toString
      longest.getBytes(UTF_8).length <= MostPathBytes && Files.isWritable(parent)
    }

  private def newFolder(): Path = {
    val parent = parents.headOption.getOrElse(
      throw new IOException(
        s"java.io.tmpdir (${System.getProperty("java.io.tmpdir")}) is too long for the path of a socket, or not writable, and so is /tmp"
      )
    )
    removeLeft()
    Files.createTempDirectory(parent, Prefix, asFileAttribute(fromString("rwx------")))
  }

  /** Appears with its whole content. */
  private def announce(blocks: Path, socket: Path, secret: Array[Byte]): Path = {
    val words = Json.line(
      ListMap(
        "socket" -> socket.toString,
        "secret" -> secret.map(byte => f"$byte%02x").mkString,
        "version" -> Facts.build.getOrElse("version", "")
      )
    )
    val draft = Files.createTempFile(blocks, Announcement, ".draft", asFileAttribute(fromString("rw-------")))
    Files.write(draft, words.getBytes(UTF_8))
    Files.move(draft, blocks.resolve(Announcement), StandardCopyOption.ATOMIC_MOVE)
  }

  /**
   * Does `turn` again and again. One that fails is logged, and the next comes after a pause: others may give back what it lacked, such as a file
   * descriptor. Fatal errors are the caller's.
   */
  private[worker] def whileOpen(isOpen: => Boolean, failure: String)(turn: => Unit): Unit = while (isOpen)
    try turn
    catch {
      case _: ClosedChannelException => ()
      case error @ (NonFatal(_) | _: LinkageError) => // a class that is missing is no reason to end the executor
        logWarning(failure, error)
        Thread.sleep(RetryMillis)
    }

  private[worker] def start(name: String)(work: => Unit): Thread = {
    val thread = new Thread(
      () =>
        try work
        catch {
          case error @ (NonFatal(_) | _: LinkageError) =>
            logWarning(s"The thread $name of the endpoint for Python workers failed.", error)
          case fatal: Throwable => // Spark ends the executor then, and its log shall say where it came from
            logError(s"The thread $name of the endpoint for Python workers cannot go on, nor may its executor.", fatal)
            throw fatal
        },
      name
    )
    thread.setDaemon(true)
    thread.start()
    thread
  }
}
