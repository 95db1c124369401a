package sparkdlbench.transport

import java.nio.{ByteBuffer, ByteOrder}
import scala.collection.mutable
import scala.util.Random
import sparkdlbench.common.RunFailedException
import sparkdlbench.vector.VectorPart

/**
 * What goes on between the ranks of an in-memory group.
 *
 * @param timeoutMillis
 *   longest wait for another rank
 * @param delaySeed
 *   None: a message arrives within `send`. Otherwise another thread delivers messages later, in a random order of lanes that
 *   the seed decides, and reads the sender's buffer only then: whoever changes a buffer before `flush` is found out.
 * @param drops
 *   messages (lane, sequence) that get lost
 * @param breaks
 *   messages (lane, sequence) at which the sender fails
 * @param groups
 *   ranks that sum in memory first; None: every rank is alone
 * @param redirects
 *   whether lanes can be given another destination
 */
final case class InMemoryConditions(
    timeoutMillis: Long = 20000,
    delaySeed: Option[Long] = None,
    drops: (Lane, Long) => Boolean = (_, _) => false,
    breaks: (Lane, Long) => Boolean = (_, _) => false,
    groups: Option[RankGroups] = None,
    redirects: Boolean = true
)

/** A group of ranks that are threads of one JVM. Follows the contract of `Transport` to the letter, and checks its users. */
final class InMemoryGroup(val size: Int, val conditions: InMemoryConditions) extends AutoCloseable {
  private final class LaneState(val lane: Lane, destination: Option[ByteBuffer]) {
    val slots: Array[ByteBuffer] = destination match {
      case Some(buffer) => Array(buffer.slice(buffer.position(), lane.capacity).order(ByteOrder.nativeOrder()))
      case None => Array.fill(2)(ByteBuffer.allocateDirect(lane.capacity).order(ByteOrder.nativeOrder()))
    }
    val own: Boolean = destination.isEmpty
    def redirect(to: ByteBuffer): Unit = {
      require(!own && arrived == released, s"$lane is redirected while a message is there")
      slots(0) = to.slice(to.position(), lane.capacity).order(ByteOrder.nativeOrder())
    }
    var sent, arrived, received, released = 0L
    def slot(sequence: Long): ByteBuffer = slots((sequence % slots.length).toInt)
  }
  private final class Pending(val state: LaneState, val sequence: Long, val data: ByteBuffer)

  /** The lanes of each call of `open`, and how many ranks have made it. */
  private val announced = mutable.ArrayBuffer.empty[Seq[Lane]]
  private val opened = mutable.ArrayBuffer.empty[Int]
  private val states = mutable.Map.empty[Int, LaneState]
  private val pending = mutable.ArrayBuffer.empty[Pending]
  private var failure: Option[Throwable] = None
  private var closed = false
  private val courier = conditions.delaySeed.map { seed =>
    val thread = new Thread(() => deliverLater(new Random(seed)), "in-memory-courier")
    thread.setDaemon(true)
    thread.start()
    thread
  }

  def connect(rank: Int): Transport = new InMemoryTransport(rank)

  /** Makes every rank's wait, and its next call, fail. */
  def abort(cause: Throwable): Unit = synchronized {
    if (failure.isEmpty) failure = Some(cause)
    notifyAll()
  }

  def close(): Unit = {
    synchronized { closed = true; notifyAll() }
    courier.foreach(_.join(5000))
  }

  private def await(rank: Int, what: => String)(condition: => Boolean): Unit = {
    val deadline = System.nanoTime() + conditions.timeoutMillis * 1000000
    while (!condition) {
      checkFailure(rank)
      val leftMillis = (deadline - System.nanoTime()) / 1000000
      if (leftMillis <= 0)
        throw new RunFailedException(s"Rank $rank waited ${conditions.timeoutMillis} ms for $what, in vain.")
      wait(math.min(leftMillis, 100))
    }
  }

  private def checkFailure(rank: Int): Unit =
    failure.foreach(cause => throw new RunFailedException(s"Rank $rank stops: ${cause.getMessage}", cause))

  private def deliver(message: Pending): Unit = {
    val state = message.state
    // What follows a lost message is lost as well: a lane keeps its order.
    if (message.sequence != state.arrived) return
    if (message.sequence - state.released >= state.slots.length)
      throw new IllegalStateException(
        s"${state.lane}: message ${message.sequence} arrived where only messages below ${state.released} were released"
      )
    val slot = state.slot(message.sequence)
    slot.clear()
    slot.put(message.data.duplicate()).flip()
    state.arrived += 1
    notifyAll()
  }

  private def deliverLater(random: Random): Unit = synchronized {
    try
      while (!closed && failure.isEmpty)
        if (pending.isEmpty) wait(100)
        else {
          // The chosen lane's oldest message: lanes keep their order, nothing else does.
          val chosen = pending(random.nextInt(pending.length)).state
          if (random.nextInt(8) == 0) wait(1)
          val oldest = pending.indexWhere(_.state eq chosen)
          deliver(pending(oldest))
          pending.remove(oldest)
          notifyAll()
        }
    catch { case error: Throwable => abort(error) }
  }

  private final class InMemoryTransport(val rank: Int) extends Transport {
    private var sentBytes = 0L
    private var sentWithinGroup = 0L
    private var poison = Array.empty[Byte]
    private var calls = 0
    def size: Int = InMemoryGroup.this.size
    override val groups: RankGroups = conditions.groups.getOrElse(RankGroups.alone(size))
    private val ownGroup = groups.members.find(_.contains(rank)).get

    def lanesOpened: Int = InMemoryGroup.this.synchronized(announced.take(calls).map(_.size).sum)

    def open(
        lanes: Seq[Lane],
        destination: Lane => Option[ByteBuffer],
        part: Lane => Option[VectorPart]
    ): Unit = InMemoryGroup.this.synchronized {
      val (call, first) = (calls, lanesOpened)
      require(lanes.map(_.id) == (first until first + lanes.size), "lane ids go on from those that are open")
      if (announced.size == call) { announced += lanes; opened += 0 }
      require(announced(call) == lanes, s"rank $rank announces other lanes than another rank")
      lanes.filter(_.to == rank).foreach(lane => states(lane.id) = new LaneState(lane, destination(lane)))
      poison = Array.fill(lanes.filter(_.to == rank).map(_.capacity).foldLeft(poison.length)(math.max))(-1)
      calls += 1
      opened(call) += 1
      InMemoryGroup.this.notifyAll()
      await(rank, "all ranks to open their lanes")(opened(call) == size)
    }

    override def redirect(lane: Lane, destination: ByteBuffer): Boolean = InMemoryGroup.this.synchronized {
      require(lane.to == rank, s"rank $rank redirects $lane")
      if (conditions.redirects) states(lane.id).redirect(destination)
      conditions.redirects
    }

    def send(lane: Lane, sequence: Long, data: ByteBuffer): Unit = InMemoryGroup.this.synchronized {
      checkFailure(rank)
      val state = states(lane.id)
      require(lane.from == rank && lane == state.lane, s"rank $rank sends on $lane")
      require(data.isDirect && data.remaining <= lane.capacity, s"$lane cannot carry $data")
      require(sequence == state.sent, s"$lane: sequence $sequence after ${state.sent - 1}")
      if (conditions.breaks(lane, sequence)) throw new RunFailedException(s"rank $rank breaks at $lane, as told")
      state.sent += 1
      if (ownGroup.contains(lane.to)) sentWithinGroup += data.remaining else sentBytes += data.remaining
      val message = new Pending(state, sequence, data.duplicate())
      if (!conditions.drops(lane, sequence)) {
        if (courier.isEmpty) deliver(message) else pending += message
        InMemoryGroup.this.notifyAll()
      }
    }

    def flush(): Unit = InMemoryGroup.this.synchronized {
      await(rank, "its messages to be delivered")(!pending.exists(_.state.lane.from == rank))
    }

    def receive(lane: Lane, sequence: Long): ByteBuffer = InMemoryGroup.this.synchronized {
      checkFailure(rank)
      val state = states(lane.id)
      require(lane.to == rank, s"rank $rank receives on $lane")
      require(
        sequence == state.received && sequence == state.released,
        s"$lane: received $sequence, ${state.released} is next"
      )
      await(rank, s"${lane.purpose} (sequence $sequence) from rank ${lane.from}")(state.arrived > sequence)
      state.received += 1
      state.slot(sequence)
    }

    def hasArrived(lane: Lane, sequence: Long): Boolean = InMemoryGroup.this.synchronized {
      checkFailure(rank)
      require(states(lane.id).lane.to == rank, s"rank $rank asks for $lane")
      states(lane.id).arrived > sequence
    }

    def awaitAny(messages: IndexedSeq[(Lane, Long)]): Unit = InMemoryGroup.this.synchronized {
      require(messages.nonEmpty && messages.forall(_._1.to == rank), s"rank $rank waits for $messages")
      await(rank, s"any of ${messages.size} messages")(messages.exists { case (lane, sequence) =>
        states(lane.id).arrived > sequence
      })
    }

    def release(lane: Lane, sequence: Long): Unit = InMemoryGroup.this.synchronized {
      val state = states(lane.id)
      require(sequence == state.released && state.received == sequence + 1, s"$lane: released $sequence")
      state.released += 1
      // Not-a-numbers, for those who read on.
      if (state.own) state.slot(sequence).duplicate().clear().put(poison, 0, lane.capacity)
    }

    def bytesSent: Map[String, Long] =
      InMemoryGroup.this.synchronized(Map("in-memory" -> sentBytes, "in-process" -> sentWithinGroup))

    def close(): Unit = ()
  }
}
