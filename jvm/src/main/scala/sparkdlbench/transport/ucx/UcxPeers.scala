package sparkdlbench.transport.ucx

import org.openucx.jucx.UcxCallback
import org.openucx.jucx.UcxUtils
import org.openucx.jucx.ucp.{UcpEndpoint, UcpEndpointParams, UcpRequest, UcpWorker}

import java.io.IOException
import java.nio.ByteBuffer
import java.util.concurrent.CopyOnWriteArrayList
import java.util.concurrent.atomic.AtomicReferenceArray
import scala.jdk.CollectionConverters._
import scala.util.Try

/**
 * The other ranks as UCX reaches them: one endpoint each, made when it is first used, by the address that came through Spark.
 *
 * A lost peer is noticed by UCX itself where it can (TCP, RDMA). Shared memory cannot, and UCX does not use it for endpoints
 * that want to be told; so where both processes see each other's numbers we look every so often whether the other still runs.
 */
private[ucx] final class UcxPeers(
    val rank: Int,
    addresses: IndexedSeq[UcxAddress],
    worker: UcpWorker,
    loop: UcxLoop
) {
  import UcxPeers._
  private val self = addresses(rank)
  private val endpoints = new Array[UcpEndpoint](addresses.size) // the loop's thread alone
  private val losses = new AtomicReferenceArray[Loss](addresses.size)
  private val concerned = Array.fill(addresses.size)(new CopyOnWriteArrayList[Throwable => Unit])
  @volatile private var watching = true
  private val watch = new Thread(() => look(), s"sparkdl-ucx-watch-$rank")
  watch.setDaemon(true)

  def size: Int = addresses.size
  def start(): Unit = watch.start()

  def isHere(peer: Int): Boolean = addresses(peer).process == self.process

  /** `tell` hears once that rank `peer` was lost; `first`: before the others, as it can name the peer better. */
  def onLoss(peer: Int, first: Boolean)(tell: Throwable => Unit): Unit =
    if (first) concerned(peer).add(0, tell) else concerned(peer).add(tell): Unit

  /** On the loop's thread. */
  def endpoint(peer: Int): UcpEndpoint = {
    if (endpoints(peer) == null) {
      val bytes = addresses(peer).worker
      val parameters =
        new UcpEndpointParams().setUcpAddress(ByteBuffer.allocateDirect(bytes.length).put(bytes).flip())
      if (!isWatched(peer))
        parameters
          .setPeerErrorHandlingMode()
          .setErrorHandler((_: UcpEndpoint, _: Int, message: String) => lose(peer, message))
      endpoints(peer) = worker.newEndpoint(parameters)
    }
    endpoints(peer)
  }

  /** Sends a few bytes, as a message's header. On the loop's thread. */
  def tell(peer: Int, kind: Int, bytes: Array[Byte]): Unit = {
    val header = ByteBuffer.allocateDirect(bytes.length).put(bytes).flip()
    endpoint(peer).sendAmNonBlocking(
      kind,
      UcxUtils.getAddress(header),
      bytes.length.toLong,
      0L,
      0L,
      0L,
      new UcxCallback {
        private val kept = header // until it has been sent
        override def onSuccess(request: UcpRequest): Unit = kept.clear(): Unit
        override def onError(status: Int, message: String): Unit = lose(peer, message)
      }
    ): Unit
  }

  /** Ends all endpoints, after what was sent; on the loop's thread. */
  def closeAll(): Unit = {
    val requests = endpoints.indices.filter(endpoints(_) != null).flatMap { peer =>
      val broken = losses.get(peer) != null && !isWatched(peer)
      Try(if (broken) endpoints(peer).closeNonBlockingForce() else endpoints(peer).closeNonBlockingFlush()).toOption
    }
    loop.progressUntil(CloseMillis)(requests.forall(one => one == null || one.isCompleted))
  }

  def stop(): Unit = watching = false

  private def isWatched(peer: Int): Boolean =
    addresses(peer).kernel == self.kernel && addresses(peer).processes == self.processes && self.pid.runs

  private def lose(peer: Int, why: String): Unit =
    losses.compareAndSet(peer, null, new Loss(new IOException(why), System.nanoTime())): Unit

  private def look(): Unit = {
    var round = 0L
    while (watching) {
      addresses.indices.foreach { peer =>
        val asked = !concerned(peer).isEmpty && !isHere(peer)
        if (asked && losses.get(peer) == null && isWatched(peer) && !addresses(peer).pid.runs)
          lose(peer, s"its process ${addresses(peer).pid.number} has ended")
        val loss = losses.get(peer)
        // A goodbye that came before the end may still be on its way to us.
        if (asked && loss != null && System.nanoTime() - loss.at > GraceNanos) {
          val ears = concerned(peer).asScala.toList
          concerned(peer).clear()
          ears.foreach(_(loss.cause))
        }
      }
      round += 1
      if (round % WakeRounds == 0) Try(loop.wake())
      Thread.sleep(LookMillis)
    }
  }
}

private[ucx] object UcxPeers {
  private val LookMillis = 200L
  private val WakeRounds = 5
  private val GraceNanos = 300000000L
  private val CloseMillis = 500L

  private final class Loss(val cause: IOException, val at: Long)
}
