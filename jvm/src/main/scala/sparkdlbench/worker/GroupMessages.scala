package sparkdlbench.worker

import sparkdlbench.collective.{PeerMessage, PeerMessages}
import sparkdlbench.transport.Transport
import sparkdlbench.common.{Outcome, RunFailedException}

import java.nio.{ByteBuffer, ByteOrder}
import java.util.concurrent.ConcurrentLinkedQueue
import java.util.concurrent.locks.LockSupport
import scala.collection.mutable

/**
 * The messages of a group's second connection: any number at a time, each answered when it is done, so that receives which wait hold nothing
 * up. One thread reads requests (`take`), another one has the transport (`serve`).
 *
 * @param pid
 *   of the Python process
 * @param answer
 *   kind, id, body
 */
private[worker] final class GroupMessages(
    pid: Long,
    timeoutMillis: Long,
    isKilled: () => Boolean,
    answer: (Int, Long, Array[Byte]) => Unit
) {
  import GroupMessages._
  private final class Pending(val id: Long, val message: PeerMessage, val isSend: Boolean) {
    val begun: Long = System.nanoTime()
  }
  private val requests = new ConcurrentLinkedQueue[Pending]
  private var memory = ByteBuffer.allocateDirect(0).order(ByteOrder.nativeOrder())
  @volatile private var server: Thread = _
  @volatile private var ended = false

  /** By the thread that reads requests. */
  def take(request: Frame, rank: Int, size: Int): Unit = {
    val body = request.body
    request.kind match {
      case GroupOperations.Map =>
        memory = PythonMemory.map(pid, body.getInt(), body.getLong())
        answer(Answer.Done, request.id, Array.emptyByteArray)
      case Send | Receive =>
        val (peer, tag) = (body.getInt(), body.getInt())
        val isAny = peer < 0 && request.kind == Receive
        if (!isAny && (peer < 0 || peer >= size || peer == rank))
          throw new ProtocolException(s"there is no other rank $peer")
        val data = GroupOperations.part(memory, body)
        val message = new PeerMessage(if (isAny) None else Some(peer), tag, data)
        requests.add(new Pending(request.id, message, request.kind == Send))
        LockSupport.unpark(server)
      case other => throw new ProtocolException(s"request $other is unknown")
    }
  }

  /** Lets `serve` return. By anybody. */
  def end(): Unit = {
    ended = true
    LockSupport.unpark(server)
  }

  /**
   * Until `end`, or until something fails; then all that is pending has been answered so. In one thread, with the transport.
   *
   * @param opened
   *   called once the transport is there
   */
  def serve(connect: (Transport => PeerMessages) => (Transport, PeerMessages), opened: Transport => Unit): Unit = {
    server = Thread.currentThread()
    val (transport, messages) = connect(new PeerMessages(_))
    val pending = mutable.ArrayBuffer.empty[Pending]
    val outcome = Outcome.of {
      opened(transport)
      var quiet = 0
      while (!ended) {
        val moved = begin(messages, pending) | messages.progress()
        finish(pending)
        quiet = if (moved) 0 else quiet + 1
        if (!moved && !ended) rest(quiet, messages.isIdle)
      }
    }
    outcome.failed.foreach { error =>
      val (kind, words) = WorkerConnection.reason(error)
      requests.forEach(each => pending += each: Unit)
      pending.foreach(each => Outcome.of(answer(kind, each.id, words.getBytes("UTF-8"))))
    }
    Outcome.after(outcome)(() => transport.close())
  }

  /** Whether there were new requests. */
  private def begin(messages: PeerMessages, pending: mutable.ArrayBuffer[Pending]): Boolean = {
    var found = false
    Iterator.continually(requests.poll()).takeWhile(_ != null).foreach { each =>
      found = true
      pending += each
      if (each.isSend) messages.send(each.message) else messages.receive(each.message)
    }
    found
  }

  private def finish(pending: mutable.ArrayBuffer[Pending]): Unit = {
    val (done, others) = pending.partition(_.message.done)
    if (done.nonEmpty) {
      done.foreach { each =>
        val source = ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(each.message.source)
        answer(Answer.Done, each.id, source.array)
      }
      pending.clear()
      pending ++= others: Unit
    }
    pending.headOption.foreach { oldest =>
      if (System.nanoTime() - oldest.begun > timeoutMillis * 1000000L) throw late(oldest)
    }
    if (pending.nonEmpty && isKilled()) throw new RunFailedException("The task was asked to end.")
  }

  private def late(oldest: Pending) = {
    val peer = oldest.message.peer.fold("any rank")(number => s"rank $number")
    val what = if (oldest.isSend) s"to $peer was not received" else s"from $peer did not come"
    new RunFailedException(
      s"A message with tag ${oldest.message.tag} $what within ${timeoutMillis / 1000} s. Look into the logs of the other executors, or give the group a longer timeout."
    )
  }

  /** What comes next is seldom far when something is under way; else a request wakes this thread. */
  private def rest(quiet: Int, isIdle: Boolean): Unit =
    if (quiet < SpinRounds) Thread.`yield`()
    else if (isIdle) LockSupport.parkNanos(this, IdleNanos)
    else LockSupport.parkNanos(this, math.min(LongestNanos, FirstNanos * (quiet - SpinRounds + 1)))
}

private[worker] object GroupMessages {

  /** int32 rank in the group, int32 tag, part; answered when the memory may be changed. */
  val Send = 30

  /** int32 rank in the group (-1: any), int32 tag, part; answered with the sender's rank (int32) when it is there. */
  val Receive = 31
  private val SpinRounds = 200
  private val FirstNanos = 20000L
  private val LongestNanos = 500000L
  private val IdleNanos = 100000000L
}
