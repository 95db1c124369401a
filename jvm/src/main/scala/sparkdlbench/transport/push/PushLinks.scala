package sparkdlbench.transport
package push

import sparkdlbench.common.{Outcome, RunFailedException}

import java.nio.ByteBuffer
import java.nio.charset.StandardCharsets.UTF_8
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicBoolean
import scala.jdk.CollectionConverters._
import scala.util.{Failure, Success, Try}

/** The streams of one rank to ranks of other processes, and the way for control words to any rank. */
final class PushLinks(
    group: GroupContext,
    network: PushNetwork,
    mailbox: Mailbox,
    peers: IndexedSeq[PushPeer],
    waiting: PushWait
) extends AutoCloseable {
  private val self = peers(group.rank)
  private val channels = new java.util.TreeMap[Int, PushChannel]
  private val congestion = ConcurrentHashMap.newKeySet[String]()
  private val encrypting = ConcurrentHashMap.newKeySet[String]()
  private val told = scala.collection.mutable.SortedSet.empty[Int]

  def isHere(peer: Int): Boolean = peers(peer).process == self.process

  def channel(peer: Int): PushChannel = channels.get(peer)

  /** Connects to those of `ranks` that live in other processes and are not connected yet, all at once. */
  def connect(ranks: Iterable[Int]): Unit = {
    val missing = ranks.filterNot(rank => isHere(rank) || channels.containsKey(rank)).toSeq.distinct.sorted
    val results = new ConcurrentHashMap[Int, Try[PushChannel]] // whoever takes one out has it
    val givenUp = new AtomicBoolean
    def abandon(): Unit =
      missing.foreach(rank => Option(results.remove(rank)).foreach(_.foreach(_.abort())))
    val threads = missing.map { rank =>
      val thread = new Thread(() => {
        connect(rank, results.put(rank, _): Unit)
        if (givenUp.get) abandon() else mailbox.wakeUp() // it may have come too late to be found by who gave up
      })
      thread.setName(s"sparkdl-connect-${group.rank}-$rank")
      thread.setDaemon(true) // a connection attempt that hangs must not hold the executor
      thread.start()
      thread
    }
    try
      missing.foreach { rank =>
        try waiting.until(peers(rank), polled = false, "connect")(() => results.containsKey(rank))
        catch {
          // Where both ends failed for the same reason, the other's end may be heard of before the own result is looked at.
          case heard: RunFailedException =>
            throw results.asScala
              .collectFirst { case (failed, Failure(why)) => unconnected(failed, why) }
              .getOrElse(heard)
        }
        results.remove(rank) match {
          case Success(channel) =>
            channels.put(rank, channel)
            mailbox.ownLoop.foreach(channel.serveBy)
          case Failure(cause) =>
            throw unconnected(rank, cause)
        }
      }
    catch {
      case cause: Throwable =>
        givenUp.set(true)
        threads.foreach(_.interrupt())
        abandon()
        throw cause
    }
  }

  private def unconnected(rank: Int, cause: Throwable) =
    new RunFailedException(s"$self could not connect to ${peers(rank)} (port ${peers(rank).port}): $cause", cause)

  /** Tells the result before a connection is given up: its end is what the other rank hears of, and must not come back before the reason. */
  private def connect(rank: Int, result: Try[PushChannel] => Unit): Unit = {
    val peer = peers(rank)
    val connected = Outcome.of(
      network.connect(peer, StreamId(peer.inbox, group.rank, rank), lost(peer), () => mailbox.wakeUp())
    )
    val chosen = connected.flatMap { channel =>
      Outcome.of {
        Congestion
          .choose(channel.sockets, network.congestion(group.settings), peer.kernel == self.kernel)
          .foreach(congestion.add)
        channel.sockets.foreach(GatheringWrites.lift)
        if (network.cipher(group.settings) == Cipher.Auto) channel.encryptFaster().foreach(encrypting.add)
        channel
      }
    }
    result(chosen)
    if (chosen.isFailure) connected.foreach(_.abort())
  }

  /** What controls the congestion of its connections, as far as the system says. */
  def congestionControl: Seq[String] = congestion.asScala.toSeq.sorted

  /** Who encrypts its connections, where they are encrypted and that can be chosen. */
  def ciphers: Seq[String] = encrypting.asScala.toSeq.sorted

  private def lost(peer: PushPeer)(cause: Throwable): Unit =
    if (!mailbox.hasLeft(peer.rank))
      mailbox.fail(new RunFailedException(s"$self lost its stream to $peer: ${cause.getMessage}", cause))

  /** Delivers a control word; the peer must be connected. */
  def tell(peer: Int, control: Control): Unit = {
    told += peer
    if (isHere(peer)) Mailbox.find(peers(peer).inbox, peer).foreach(_.tell(group.rank, control))
    else {
      val text = Control.print(control).getBytes(UTF_8)
      val payload = ByteBuffer.allocateDirect(text.length).put(text).flip()
      if (control == Control.Bye) channels.get(peer).pushLast(payload)
      else channels.get(peer).push(Frame.ControlLane, 0, payload)
    }
  }

  /** Waits until what was sent has left; what was sent to a rank that has gone since, having got what it needed, nobody reads. */
  def flush(): Unit = if (!channels.isEmpty) {
    val each = channels.entrySet().iterator()
    while (each.hasNext) {
      val entry = each.next()
      val (peer, channel) = (entry.getKey, entry.getValue)
      if (!channel.isDrained)
        waiting.until(peers(peer), polled = false, "flush")(() => channel.isDrained || mailbox.hasLeft(peer))
    }
    waiting.failIfBroken()
  }

  def framingBytes: Long = channels.values.asScala.map(_.framingBytes).sum

  /** Says goodbye to every rank we have spoken to or have a stream to, where its end would be a loss, and ends the streams in good order; waits for that, but not for long. */
  override def close(): Unit = {
    (told.toSet ++ channels.keySet().asScala).toSeq.sorted.foreach(peer => Try(tell(peer, Control.Bye)))
    val open = channels.values.asScala.toSeq
    open.foreach(channel => Try(channel.finish()))
    val deadline = System.nanoTime() + math.min(group.timeoutMillis, PushLinks.FinishMillis) * 1000000L
    while (!open.forall(_.isFinished) && System.nanoTime() < deadline) mailbox.pause(PushLinks.PauseNanos)
    open.filterNot(_.isFinished).foreach(_.abort())
    channels.clear()
  }
}

object PushLinks {
  private val FinishMillis = 3000L
  private val PauseNanos = 1000000L
}
