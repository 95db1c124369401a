package sparkdlbench.transport.ucx

import org.apache.spark.internal.Logging
import org.apache.spark.sparkdlbench.ExecutorAddress
import org.openucx.jucx.ucp._
import org.openucx.jucx.ucs.UcsConstants.STATUS
import org.openucx.jucx.{UcxException, UcxUtils}
import sparkdlbench.common.{ConfigurationException, ProcessMark, RunFailedException}
import sparkdlbench.config.Settings
import sparkdlbench.transport.GroupContext
import sparkdlbench.transport.push.{Mailbox, PushChannel, PushNetwork, PushPeer, StreamId}
import sparkdlbench.transport.tcp.Handshake

import java.io.IOException
import java.nio.ByteBuffer
import java.nio.file.Path
import java.util.concurrent.atomic.AtomicBoolean
import java.util.concurrent.{ExecutionException, TimeUnit, TimeoutException}
import scala.annotation.tailrec

/**
 * UCX between the processes: one context and worker a rank, used by one thread.
 *
 * @param tls
 *   UCX's transports to choose from, as `UCX_TLS` has them
 * @param devices
 *   network devices that it may use, as `UCX_NET_DEVICES` has them
 */
final class UcxNetwork(group: GroupContext, tls: String, devices: String, libraries: UcxLibraries)
    extends PushNetwork
    with Logging {
  import UcxNetwork._
  private val executor = ExecutorAddress.here
  private val alreadyWritten = libraries.written
  private val context = newContext()
  private val worker = context.newWorker(new UcpWorkerParams())
  private val own = UcxAddress.here(addressOf(worker))
  @volatile private var mailboxes = Set.empty[Mailbox]
  private var loop: UcxLoop = _
  private var peers: UcxPeers = _
  private var handshakes: UcxHandshakes = _
  private var inbox: UcxInbox = _
  private val closed = new AtomicBoolean
  private var chosen = Seq.empty[String]

  override def channel: String = "ucx"
  override def hostLocal(settings: Settings): String = "off"
  override def obstacle: Option[String] = None
  override def sharedDirectories: Seq[Path] = Nil
  override def facts: Map[String, String] = {
    if (chosen.isEmpty) chosen = written()
    Map(
      "ucx.version" -> UcxLibraries.Version,
      "ucx.transports" -> (if (chosen.isEmpty) "none" else chosen.mkString(", "))
    )
  }

  /** UCX keeps what it writes down in a buffer of some kilobytes, which nobody can empty but by more of it. */
  private def written(): Seq[String] = {
    var found = libraries.chosen(alreadyWritten)
    var more = 0
    while (found.isEmpty && more < LinesAtMost) {
      new UcpContext(new UcpParams().requestAmFeature().setConfig("TLS", "self")).close() // one line each
      found = libraries.chosen(alreadyWritten)
      more += 1
    }
    found
  }

  /** Messages that were refused so far. */
  def refused: Long = if (handshakes == null) 0 else handshakes.refused

  /** Of this rank's worker. */
  private[ucx] def address: Array[Byte] = own.worker

  override def describe(rank: Int): PushPeer = {
    if (loop == null) open()
    PushPeer(rank, executor.host, 0, executor.id, PushPeer.thisProcess, ProcessMark.kernel, encrypted = false)
  }

  private def open(): Unit = {
    val addresses = group.allGather(UcxAddress.print(own)).map(UcxAddress.parse)
    val ranksHere = addresses.count(_.kernel == ProcessMark.kernel)
    val spins = Runtime.getRuntime.availableProcessors >= 2 * ranksHere
    loop = new UcxLoop(s"sparkdl-ucx-${group.rank}", worker, if (spins) SpinNanos else 0L, failAll)
    peers = new UcxPeers(group.rank, addresses, worker, loop)
    inbox = new UcxInbox(group.rank, why => handshakes.refuse(why))
    handshakes = new UcxHandshakes(group.rank, group.size, peers.tell(_, _, _), new Handshake(group.secret.key), admit)
    UcxHandshakes.Kinds.foreach(kind => listen(kind) { (header, _) => handshakes.receive(kind, header); STATUS.UCS_OK })
    listen(UcxFrame.Kind)(inbox.accept)
    loop.start()
    peers.start()
  }

  private def listen(kind: Int)(receive: (ByteBuffer, UcpAmData) => Int): Unit = {
    val handler: UcpAmRecvCallback = (header, bytes, data, _) =>
      try receive(if (bytes == 0) ByteBuffer.allocate(0) else UcxUtils.getByteBufferView(header, bytes), data)
      catch { case error: Throwable => failAll(error); STATUS.UCS_OK } // it would come out of native code otherwise
    worker.setAmRecvHandler(kind, handler, UcpConstants.UCP_AM_FLAG_WHOLE_MSG)
  }

  private def admit(number: Long, from: Int, mailbox: Mailbox): Unit = {
    mailboxes += mailbox
    inbox.admit(number, from, mailbox)
    peers.onLoss(from, first = false) { cause =>
      if (!mailbox.hasLeft(from))
        mailbox.fail(
          new RunFailedException(
            s"the stream from rank $from to rank ${group.rank} broke off: ${cause.getMessage}",
            cause
          )
        )
    }
  }

  private def failAll(error: Throwable): Unit = {
    logError(s"Rank ${group.rank}'s UCX loop failed.", error)
    mailboxes.foreach(_.fail(new RunFailedException(s"the UCX worker of rank ${group.rank} failed: $error", error)))
  }

  override def connect(
      peer: PushPeer,
      id: StreamId,
      onFailure: Throwable => Unit,
      onDrained: () => Unit
  ): PushChannel = {
    val entry = handshakes.entry(id)
    try new UcxChannel(peers, loop, peer.rank, number(entry), onFailure, onDrained)
    catch {
      case _: TimeoutException =>
        throw new IOException(
          s"it gave no proof of the run's secret within ${group.timeoutMillis} ms (ucx.tls = $tls, ucx.devices = $devices)"
        )
      case failed: ExecutionException =>
        throw new IOException(
          s"UCX finds no way there with ucx.tls = $tls and ucx.devices = $devices: ${failed.getCause.getMessage}"
        )
    }
  }

  /** Of the stream, once the other end has accepted it. Greets again until then, less and less often: strangers may have crowded a greeting out. */
  private def number(entry: UcxHandshakes.Leaving): Long = {
    val deadline = System.nanoTime() + group.timeoutMillis * 1000000L
    val greeting: Runnable = () =>
      try handshakes.greet(entry)
      catch { case error: UcxException => entry.done.completeExceptionally(error): Unit }
    @tailrec
    def after(pauseMillis: Long): Long = {
      loop.execute(greeting)
      val leftMillis = math.max(1L, (deadline - System.nanoTime()) / 1000000L)
      answer(entry, math.min(pauseMillis, leftMillis)) match {
        case Some(number) => number
        case None if pauseMillis < leftMillis => after(math.min(2 * pauseMillis, GreetingMillisAtMost))
        case None => throw new TimeoutException
      }
    }
    try after(GreetingMillis)
    finally loop.execute(() => handshakes.forget(entry))
  }

  private def answer(entry: UcxHandshakes.Leaving, millis: Long): Option[Long] =
    try Some(entry.done.get(millis, TimeUnit.MILLISECONDS))
    catch { case _: TimeoutException => None }

  private def newContext(): UcpContext = {
    val parameters = new UcpParams().requestAmFeature().requestWakeupFeature()
    try
      new UcpContext(
        parameters.setConfig("TLS", tls).setConfig("NET_DEVICES", devices).setConfig("KEEPALIVE_INTERVAL", "1s")
      )
    catch {
      case error: UcxException =>
        throw new ConfigurationException(
          s"UCX ${UcxLibraries.Version} on host ${executor.host} accepts neither ucx.tls = $tls nor ucx.devices = $devices as they are: ${error.getMessage}. " +
            "Set them as UCX_TLS and UCX_NET_DEVICES are set: all, or names that `ucx_info -d` lists there.",
          error
        )
    }
  }

  override def close(): Unit = if (closed.compareAndSet(false, true)) {
    if (loop == null) { worker.close(); context.close() }
    else {
      // A peer that still says goodbye must find us.
      val deadline = System.nanoTime() + CloseMillis * 1000000L
      val unbroken = mailboxes.forall(_.failed.isEmpty)
      loop.stop(
        () => {
          if (unbroken) loop.progressUntil((deadline - System.nanoTime()) / 1000000L)(!inbox.unfinished)
          peers.closeAll()
          peers.stop()
          worker.close()
          context.close()
        },
        2 * CloseMillis
      )
      peers.stop()
    }
  }
}

private[ucx] object UcxNetwork {
  private def addressOf(worker: UcpWorker): Array[Byte] = {
    val address = worker.getAddress
    val bytes = new Array[Byte](address.remaining)
    address.get(bytes)
    bytes
  }

  private val SpinNanos = 20000L
  private val CloseMillis = 2000L
  private val LinesAtMost = 100

  /** Pauses before an unanswered greeting is sent again: the first, and the longest. */
  private val GreetingMillis = 1000L
  private val GreetingMillisAtMost = 8000L
}
