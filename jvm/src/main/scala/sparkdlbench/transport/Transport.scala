package sparkdlbench.transport

import sparkdlbench.config.{RunKeys, Settings, Variants}
import sparkdlbench.vector.VectorPart

import java.nio.ByteBuffer

/**
 * A one-way path for messages from one rank to another.
 *
 * @param id
 *   unique in the group and the same on both ends; decided by whoever opens it: see `Transport.open`
 * @param capacity
 *   bytes of the largest message
 * @param purpose
 *   what it carries, for error messages
 */
final case class Lane(id: Int, from: Int, to: Int, capacity: Int, purpose: String = "data")

/** What a rank knows of its group when it connects. */
trait GroupContext {
  def rank: Int
  def size: Int

  /** Same on all ranks, different for every attempt of every run: messages of another attempt are refused. */
  def attemptId: String

  def secret: RunSecret
  def settings: Settings
  def timeoutMillis: Long

  /**
   * Every rank's text, by rank. A collective call, for the rendezvous alone: the texts go over the driver, and in a session without the plugin
   * Spark looks for them once a second.
   */
  def allGather(text: String): IndexedSeq[String]

  /** True when the task was asked to end; every wait checks it. */
  def isKilled: Boolean
}

/**
 * A group of `size` ranks that push messages to each other (one-stage shape). Used by one thread a rank. Every wait is
 * bounded by the group's timeout, ends when the task is killed, and fails with the rank, host, executor and phase that
 * did not answer (RunFailedException).
 *
 * Sequence numbers of a lane start at 0 and grow by 1. The topologies guarantee that message `sequence` + 2 of a lane
 * is sent only after the receiver has finished with message `sequence`, so two slots a lane are enough; a transport
 * that sees the rule broken fails, it never overwrites.
 */
trait Transport extends AutoCloseable {
  def rank: Int
  def size: Int

  /** The ranks that topologies let sum in memory first; the same on all ranks of an attempt. */
  def groups: RankGroups = RankGroups.alone(size)

  /** The lanes of the group that are open already: the number of the next one. The same on all ranks between two `open`s. */
  def lanesOpened: Int

  /**
   * Opens lanes of the whole group (the same list on all ranks) before their first message; a collective call. Whatever
   * has messages of its own (a step's collectives, sums beside them, …) opens lanes of its own: all ranks make these calls in
   * the same order, and each takes consecutive numbers from `lanesOpened` on.
   *
   * @param destination
   *   for a lane that ends here: the direct buffer, of at least the lane's capacity, that its messages are written to
   *   from its position on (each overwrites the last), or None for two slots of the transport's own. For a lane with a
   *   destination the topologies guarantee more than for others: message `sequence` + 1 is sent only after the receiver
   *   has released message `sequence` and no longer uses the memory.
   * @param part
   *   of a vector. For a lane that ends here: its destination. For one that starts here: where its messages lie, if the
   *   receiver may read them there instead of a copy: they stay as they are until `awaitReads`.
   */
  def open(
      lanes: Seq[Lane],
      destination: Lane => Option[ByteBuffer],
      part: Lane => Option[VectorPart] = _ => None
  ): Unit

  /**
   * A lane that was opened with a destination has this one from its next message on. Between two messages of the lane, and before anything
   * is sent that makes the next one come. Concerns this rank alone.
   *
   * @return
   *   false where the transport cannot; then the destination stays what it was
   */
  def redirect(lane: Lane, destination: ByteBuffer): Boolean = false

  /**
   * Starts sending `data`'s remaining bytes (none is a message too) and returns. `data` is direct and must not change
   * until `flush` returns; it may be memory that is also being sent on other lanes, or a lane's destination. Its
   * position and limit are left as they are.
   *
   * @param lane
   *   one that starts at this rank
   */
  def send(lane: Lane, sequence: Long, data: ByteBuffer): Unit

  /** Waits until every buffer given to `send` may be changed again, but for those that receivers read where they lie (`open`). */
  def flush(): Unit

  /**
   * Waits until receivers have read what they read where it lies. Not within a step in which they have something else to do first that needs
   * this rank, such as a layer that works over all ranks' rows.
   */
  def awaitReads(): Unit = ()

  /**
   * Waits for message `sequence` of a lane that ends at this rank. The bytes between the returned buffer's position and
   * limit are the message, valid until `release`; callers leave position and limit as they are. Returning the same
   * object for the same slot each time spares the caller new views of it.
   */
  def receive(lane: Lane, sequence: Long): ByteBuffer

  /** Whether `receive` would return at once. Does not wait; fails where the group has failed. */
  def hasArrived(lane: Lane, sequence: Long): Boolean

  /** Waits until one of these messages of lanes that end here has arrived, bounded as `receive`. */
  def awaitAny(messages: IndexedSeq[(Lane, Long)]): Unit

  /**
   * Whether a rank is known to have left the group; what it sent before may still be on its way to `hasArrived`. False where the transport
   * cannot tell: then a wait for it ends by the timeout.
   */
  def hasLeft(peer: Int): Boolean = false

  /**
   * The message returned by `receive` has been read; its slot may be overwritten. Due for every message, also where it
   * went to a destination.
   */
  def release(lane: Lane, sequence: Long): Unit

  /**
   * Payload bytes sent by this rank so far, by channel name (`block-stream`, `host-local`, `tcp`, …); framing apart as
   * `….framing`.
   */
  def bytesSent: Map[String, Long]

  /** What really carries this rank's bytes (devices, interfaces, libraries), as far as it has been found out; for the run's record. */
  def facts: Map[String, String] = Map.empty
}

/**
 * What a run will have around a rank, as far as the driver can tell before the run.
 *
 * @param ranks
 *   of the run
 * @param executors
 *   processes that its tasks may go to
 * @param hosts
 *   that those are on, at most; at least 1
 */
final case class RankPlacement(ranks: Int, executors: Int, hosts: Int) {

  /** Whether some rank has another in another process. */
  def severalProcesses: Boolean = ranks > 1 && executors > 1

  /** Ranks that at least one host must take. */
  def ranksOnAHost: Int = (ranks + hosts - 1) / hosts
}

/** A transport of the one-stage shape: the training loop runs in the tasks of one barrier stage. */
trait OneStageTransport extends TransportVariant {

  /** Connects this rank to its group; a collective call, made once an attempt. */
  def connect(group: GroupContext): Transport

  /**
   * Makes the checks of `connect` that a process can make by itself, in a task and for the doctor: a run would find the same when it
   * connects. Throws what `connect` would, a ConfigurationException where the user can correct it.
   */
  def checkHere(settings: Settings, around: RankPlacement): Unit = ()

  /** A new run's secret, made on the driver. */
  def newSecret(settings: Settings): RunSecret = RunSecret.random()

  /** Direct memory that a lane takes where it ends. */
  def inboxBytes(capacity: Long, destination: Boolean): Long = if (destination) 0 else 2 * capacity

  /** Why its bytes travel in the clear with these settings, in a session that encrypts; None where they do not. */
  def inTheClear(settings: Settings): Option[String] = None

  /** The same where executors of one host share mapped memory instead; None: they never do. */
  def mappedInboxBytes(settings: Settings, capacity: Long): Option[Long] = None
}

object OneStageTransport {

  /** The one that the settings name. */
  def of(settings: Settings): OneStageTransport =
    Variants.find[TransportVariant]("transport", settings(RunKeys.transport)) match {
      case transport: OneStageTransport => transport
      case other => throw new IllegalStateException(s"transport ${other.name} is not of the one-stage shape")
    }
}
