package sparkdlbench.transport.ucx

import org.openucx.jucx.UcxUtils
import org.openucx.jucx.UcxCallback
import org.openucx.jucx.ucp.{UcpConstants, UcpRequest}
import sparkdlbench.transport.push.PushChannel

import java.io.IOException
import java.nio.ByteBuffer
import java.util.concurrent.atomic.{AtomicBoolean, AtomicLong}

/**
 * Frames to one rank. The rank's thread queues them; the loop's thread hands them to UCX, which reads the payload from where it
 * lies.
 *
 * @param number
 *   of the stream, which only both ends know
 */
private[ucx] final class UcxChannel(
    peers: UcxPeers,
    loop: UcxLoop,
    peer: Int,
    number: Long,
    onFailure: Throwable => Unit,
    onDrained: () => Unit
) extends PushChannel {
  private val queued = new AtomicLong
  private val sent = new AtomicLong
  private val broken = new AtomicBoolean
  private val headers = new java.util.ArrayDeque[ByteBuffer] // the loop's thread alone
  @volatile private var failure: Throwable = _
  @volatile private var finishing = false
  @volatile private var finished = false
  private var framing = 0L
  peers.onLoss(peer, first = true)(fail)

  override def push(lane: Int, sequence: Long, payload: ByteBuffer): Unit = {
    if (failure != null) throw new IOException(failure.getMessage, failure)
    if (finishing) throw new IOException("the stream has been ended")
    framing += UcxFrame.HeaderBytes
    if (lane < 0) framing += payload.remaining
    val data = payload.duplicate()
    queued.incrementAndGet()
    loop.execute(() => send(lane, sequence, data))
  }

  private def send(lane: Int, sequence: Long, data: ByteBuffer): Unit = {
    val free = headers.poll()
    val header = if (free == null) ByteBuffer.allocateDirect(UcxFrame.HeaderBytes) else free
    UcxFrame.putHeader(header, number, lane, data.remaining, sequence)
    // Control words come by themselves, whatever their length: nobody waits with a buffer for them.
    val flags = if (lane < 0) UcpConstants.UCP_AM_SEND_FLAG_EAGER else 0L
    val address = if (data.hasRemaining) UcxUtils.getAddress(data) else 0L
    try
      peers
        .endpoint(peer)
        .sendAmNonBlocking(
          UcxFrame.Kind,
          UcxUtils.getAddress(header),
          UcxFrame.HeaderBytes.toLong,
          address,
          data.remaining.toLong,
          flags,
          new UcxCallback {
            private val kept = data // until UCX has read it
            override def onSuccess(request: UcpRequest): Unit = {
              headers.add(header)
              done(kept)
            }
            override def onError(status: Int, message: String): Unit = {
              fail(new IOException(message))
              done(kept)
            }
          }
        ): Unit
    catch { case error: RuntimeException => fail(error); done(data) }
  }

  private def done(data: ByteBuffer): Unit = {
    data.clear()
    sent.incrementAndGet()
    onDrained()
  }

  private def fail(cause: Throwable): Unit = {
    if (failure == null) failure = cause
    if (!finishing && broken.compareAndSet(false, true)) onFailure(cause)
    onDrained()
  }

  override def isDrained: Boolean = queued.get == sent.get || failure != null

  override def framingBytes: Long = framing

  override def finish(): Unit = if (!finishing && failure == null) {
    finishing = true
    loop.execute { () =>
      // After all that was queued before it: what UCX still holds itself is on its way then.
      val flushed = new UcxCallback {
        override def onSuccess(request: UcpRequest): Unit = { finished = true; onDrained() }
        override def onError(status: Int, message: String): Unit = { finished = true; onDrained() }
      }
      try peers.endpoint(peer).flushNonBlocking(flushed): Unit
      catch { case _: RuntimeException => finished = true; onDrained() }
    }
  }

  override def isFinished: Boolean = finished || failure != null

  override def abort(): Unit = { finishing = true; finished = true }
}
