package sparkdlbench.transport
package push

import java.util.function.BooleanSupplier
import sparkdlbench.common.RunFailedException

/**
 * How a rank's thread waits. A wait ends when its condition holds, when the group has failed, when the peer has left, when
 * the task is killed, or after the group's timeout.
 *
 * @param ranksHere
 *   ranks of the group on this kernel: spinning pays only while every one of them has a core
 */
final class PushWait(mailbox: Mailbox, group: GroupContext, self: PushPeer, ranksHere: Int) {
  import PushWait._
  private val cores = Runtime.getRuntime.availableProcessors
  private val servesItself = mailbox.ownLoop.isDefined
  private val polledSpinNanos = if (cores >= ranksHere) PolledSpinNanos else 0L
  // A rank that waits for a socket needs a core for its network threads too, if it has any.
  private val signalledSpinNanos = if (cores >= (if (servesItself) 1 else 3) * ranksHere) SignalledSpinNanos else 0L

  /**
   * @param ready
   *   changes nothing, as other threads ask it too
   * @param polled
   *   the condition becomes true by another process' write to shared memory, of which nobody tells us
   * @param phase
   *   what is waited for, in words
   */
  def until(peer: PushPeer, polled: Boolean, phase: => String)(ready: BooleanSupplier): Unit =
    untilAny(peer :: Nil, polled, phase)(ready)

  /** The same for what any of `peers` may make true. */
  def untilAny(peers: Seq[PushPeer], polled: Boolean, phase: => String)(ready: BooleanSupplier): Unit =
    if (!ready.getAsBoolean && !(if (polled) spin(ready, polledSpinNanos) else spinServing(ready))) {
      val start = System.nanoTime()
      val limit = group.timeoutMillis * 1000000L
      while (!ready.getAsBoolean) {
        val elapsed = System.nanoTime() - start
        if (polled && elapsed < YieldNanos) {
          mailbox.poll() // what travels on sockets meanwhile has nobody else to serve it
          Thread.`yield`()
          failIfBroken()
        } else {
          check(peers, phase, ready, elapsed > limit)
          if (polled) mailbox.sleep(ready, PolledSleepNanos) else mailbox.sleep(ready, SleepNanos)
        }
      }
    }

  private def spin(ready: BooleanSupplier, nanos: Long): Boolean = nanos > 0 && {
    val end = System.nanoTime() + nanos
    var done = false
    while (!done && System.nanoTime() < end) {
      var i = 0
      while (i < 32 && !done) { Thread.onSpinWait(); done = ready.getAsBoolean; i += 1 }
    }
    done
  }

  private def spinServing(ready: BooleanSupplier): Boolean =
    if (!servesItself) spin(ready, signalledSpinNanos)
    else {
      val end = System.nanoTime() + signalledSpinNanos
      mailbox.poll()
      while (!ready.getAsBoolean && System.nanoTime() < end) mailbox.poll()
      ready.getAsBoolean
    }

  def failIfBroken(): Unit = mailbox.failed.foreach { cause =>
    throw new RunFailedException(s"The exchange of $self broke: ${cause.getMessage}", cause)
  }

  private def check(peers: Seq[PushPeer], phase: => String, ready: BooleanSupplier, late: Boolean): Unit = {
    failIfBroken()
    if (group.isKilled || Thread.currentThread().isInterrupted)
      throw new RunFailedException(
        s"The task of $self was asked to end while it waited in phase '$phase' for ${named(peers)}."
      )
    peers.find(peer => mailbox.hasLeft(peer.rank) && !ready.getAsBoolean).foreach { peer =>
      throw new RunFailedException(
        s"$self waited in phase '$phase' for $peer, which has left the group: its task has ended. The reason is in that task's error or in the log of that executor.".capitalize
      )
    }
    if (late)
      throw new RunFailedException(
        s"$self waited ${group.timeoutMillis} ms in phase '$phase' for ${named(peers)}, which did not answer. Look into the log of that executor; if it is only slow, raise its timeout (a run's spark.sparkdl.timeout, seconds; a launch's or a process group's own).".capitalize
      )
  }

  private def named(peers: Seq[PushPeer]): String = peers.mkString(" or ")
}

object PushWait {
  private val PolledSpinNanos = 2000L
  private val SignalledSpinNanos = 20000L
  private val YieldNanos = 5000000L
  private val PolledSleepNanos = 100000L
  private val SleepNanos = 5000000L
}
