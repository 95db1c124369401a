package sparkdlbench.transport
package push

import io.netty.channel.Channel

import java.util.concurrent.atomic.{AtomicLong, AtomicReference}
import java.util.concurrent.locks.LockSupport
import java.util.concurrent.{ConcurrentHashMap, ConcurrentLinkedQueue}
import java.util.function.BooleanSupplier
import scala.jdk.CollectionConverters._
import sparkdlbench.common.RunFailedException

/**
 * Where everything for one rank of one attempt arrives: network threads and other ranks of this process write, the rank's
 * own thread waits and reads.
 * Where it serves its connections itself (`Progress`), network threads write only until it has taken a connection over.
 */
final class Mailbox(val inbox: Long, val rank: Int, val cipher: String) extends AutoCloseable {
  private val lanes = new ConcurrentHashMap[Int, LaneSlots]
  private val readers = new ConcurrentHashMap[(Int, Int), FrameReader]
  private val streams = new ConcurrentHashMap[Int, Int]
  private val byes = new ConcurrentHashMap[Int, Int]
  private val controls = new ConcurrentLinkedQueue[(Int, Control)]
  private val gone = ConcurrentHashMap.newKeySet[Int]()
  private val failure = new AtomicReference[Throwable]
  @volatile private var sleeper: Thread = _
  @volatile private var awaited: BooleanSupplier = _
  @volatile private var loop: RankLoop = _
  private val arriving = scala.collection.mutable.Set.empty[Channel]

  def register(slots: LaneSlots): Unit =
    if (lanes.putIfAbsent(slots.lane.id, slots) != null)
      throw new IllegalArgumentException(s"Lane ${slots.lane.id} was opened twice.")

  def slots(lane: Int): Option[LaneSlots] = Option(lanes.get(lane))

  /**
   * The one reader of a stream from `from`, which may come in several uploads one after the other.
   *
   * @param number
   *   which of the `of` streams from there
   */
  def reader(from: Int, number: Int = 0, of: Int = 1): FrameReader = {
    streams.put(from, of)
    readers.computeIfAbsent((from, number), _ => new FrameReader(this, from))
  }

  /** The calling thread, which is the rank's, serves from now on what arrives here, by this loop. */
  def serveBy(own: RankLoop): Unit = {
    val early = synchronized { loop = own; arriving.toSeq }
    early.foreach(own.adopt)
  }

  def ownLoop: Option[RankLoop] = Option(loop)

  /** A stream to this mailbox begins, or goes on, on a connection. */
  def arrivesBy(channel: Channel): Unit = if (synchronized(arriving.add(channel))) {
    channel.closeFuture().addListener { (_: io.netty.util.concurrent.Future[Void]) =>
      synchronized(arriving.remove(channel)): Unit
    }
    ownLoop.foreach(_.adopt(channel))
  }

  /** Serves what waits to be served, if that is the calling thread's task. */
  def poll(): Unit = if (loop != null) loop.serve(0)

  /** Delivers a control word from rank `from`. It has left when it has said goodbye on each of its streams. */
  def tell(from: Int, control: Control): Unit = {
    if (control != Control.Bye) controls.add(from -> control)
    else if (byes.merge(from, 1, Integer.sum(_, _)) >= streams.getOrDefault(from, 1)) gone.add(from)
    wakeUp()
  }

  /** True when rank `from` has sent a control word that `expected` accepts. */
  def has(from: Int)(expected: PartialFunction[Control, _]): Boolean =
    controls.asScala.exists { case (sender, control) => sender == from && expected.isDefinedAt(control) }

  /** The first control word of rank `from` that `expected` accepts, taken out; None when there is none yet. */
  def take[C <: Control](from: Int)(expected: PartialFunction[Control, C]): Option[C] =
    controls.asScala.find { case (sender, control) => sender == from && expected.isDefinedAt(control) }.map { found =>
      controls.remove(found)
      expected(found._2)
    }

  def hasLeft(peer: Int): Boolean = gone.contains(peer)

  /** The run cannot go on: the rank's thread gets `cause` at its next wait. The first cause stays. */
  def fail(cause: Throwable): Unit = { failure.compareAndSet(null, cause); wakeUp() }

  def failed: Option[Throwable] = Option(failure.get)

  /** Something happened: wakes the rank's thread if that is what it waits for. Waking it for less costs a core two switches. */
  def wakeUp(): Unit = {
    val thread = sleeper
    if (thread != null) {
      val condition = awaited
      if (condition == null || failure.get != null || condition.getAsBoolean) wake(thread)
    }
  }

  private def wake(thread: Thread): Unit = if (thread ne Thread.currentThread()) {
    val own = loop
    if (own != null) own.wakeUp() else LockSupport.unpark(thread)
  }

  /**
   * Parks the rank's thread until somebody wakes it, or the time is over, or `ready` holds. May return early.
   *
   * @param ready
   *   changes nothing, as other threads ask it too
   */
  def sleep(ready: BooleanSupplier, nanos: Long): Unit = {
    awaited = ready
    sleeper = Thread.currentThread()
    try
      if (!ready.getAsBoolean && failure.get == null)
        if (loop != null) loop.serve(nanos) else LockSupport.parkNanos(this, nanos)
    finally sleeper = null
  }

  /** Lets the connections be served for a while, whatever has happened; for the end of a run. */
  def pause(nanos: Long): Unit = if (loop != null) loop.serve(nanos) else LockSupport.parkNanos(this, nanos)

  override def close(): Unit =
    try ownLoop.foreach(_.close())
    finally { Mailbox.forget(this); lanes.clear() }
}

/**
 * All mailboxes of this process. Global because Spark, not we, makes the shuffle manager through which streams come in;
 * keyed by a number of each mailbox' own, so that runs and attempts side by side in one executor cannot meet.
 */
object Mailbox {
  private val open = new ConcurrentHashMap[(Long, Int), Mailbox]
  private val refused = new AtomicLong

  /**
   * @param inbox
   *   from `StreamId.inboxNumber`
   * @param cipher
   *   who decrypts what arrives, where it is encrypted: a value of `Cipher.key`
   */
  def open(inbox: Long, rank: Int, cipher: String = Cipher.Spark): Mailbox = {
    val mailbox = new Mailbox(inbox, rank, cipher)
    if (open.putIfAbsent((inbox, rank), mailbox) != null)
      throw new IllegalArgumentException(s"Rank $rank has a mailbox $inbox already.")
    mailbox
  }

  def find(inbox: Long, rank: Int): Option[Mailbox] = Option(open.get((inbox, rank)))

  /** Those that are open in this process. */
  private[transport] def all: Seq[Mailbox] = open.values.asScala.toList

  private def forget(mailbox: Mailbox): Unit = open.remove((mailbox.inbox, mailbox.rank), mailbox)

  /** The mailbox that a stream is for. A stream of another run or attempt is counted and refused; nothing of it is written. */
  def accept(id: StreamId): Mailbox = find(id.inbox, id.to).getOrElse {
    refused.incrementAndGet()
    throw new RunFailedException(
      s"Rank ${id.to} of the sender's attempt is not (or no longer) in this executor; its stream is refused. The sender belongs to another attempt."
    )
  }

  /** Streams of other runs or attempts refused in this process so far. */
  def refusedStreams: Long = refused.get
}
