package sparkdlbench.algorithm

import sparkdlbench.codec.Codec
import sparkdlbench.rank.OwnedShard
import sparkdlbench.transport.{Lane, Transport}
import sparkdlbench.vector.{FlatBuffer, FloatOps}

import java.nio.{ByteBuffer, ByteOrder, FloatBuffer}

/** The two lanes between a rank and the server of a shard. A rank sends its next request once it has the reply to the last. */
private[algorithm] final case class ShardLanes(worker: Int, request: Lane, reply: Lane)

/** The head of a request: 40 bytes before an encoded gradient, where it brings one. */
private[algorithm] object ShardRequest {
  val HeaderBytes = 40
  val Pushes = 1L
  val Fetches = 2L
  val Drains = 4L

  /** Alone: the sender has read that what it asked for is not there yet, and waits on. Nobody answers that. */
  val WaitsOn = 8L
  val FlagsAt = 0

  /** How often the sender has drained so far. */
  val RoundAt = 8

  /** Steps of the sender's that the shard knows after this request. */
  val ClockAt = 16

  /** Of the weights on which the oldest gradient in it was computed. */
  val VersionAt = 24

  /** Steps of every rank's that the weights asked for must hold. */
  val RequiredAt = 32
}

/** The head of a reply: 16 bytes before encoded weights, where those were asked for. */
private[algorithm] object ShardReply {
  val HeaderBytes = 16

  /** Steps that the shard knows of every rank; or `NotYet`. */
  val StampAt = 0

  /** What was asked for is not there yet: the server lives, and another reply will come. */
  val NotYet: Long = -1L

  /** Updates made so far. */
  val VersionAt = 8
}

/** Memory that a message is written to, and the transport may read until it is flushed. */
private[algorithm] final class ShardImage(headerBytes: Int, codec: Codec, values: Int) {
  val bytes: ByteBuffer =
    ByteBuffer.allocateDirect(ShardImage.capacity(headerBytes, codec, values)).order(ByteOrder.nativeOrder())
  private val payload = bytes.slice(headerBytes, bytes.capacity - headerBytes).order(ByteOrder.nativeOrder())

  /** Message without values. */
  def empty(): Unit = bytes.clear().limit(headerBytes): Unit

  def encode(source: FloatBuffer, residual: Option[FloatBuffer]): Unit = {
    val written =
      if (source.remaining == 0) 0 else residual.fold(codec.encode(source, payload))(codec.encode(source, payload, _))
    bytes.clear().limit(headerBytes + written)
    ()
  }

  /** What `encode` has written, as its receivers see it. */
  def decode(target: FloatBuffer): Unit = ShardImage.decode(bytes, headerBytes, codec, target)
}

private[algorithm] object ShardImage {
  def capacity(headerBytes: Int, codec: Codec, values: Int): Int =
    Math.toIntExact(headerBytes + (if (values == 0) 0L else codec.maxBytes(values)))

  def decode(message: ByteBuffer, headerBytes: Int, codec: Codec, target: FloatBuffer): Unit =
    if (target.remaining > 0) {
      val from = message.position() + headerBytes
      codec.decode(message.slice(from, message.limit() - from).order(ByteOrder.nativeOrder()), target)
    }
}

/**
 * One shard at the rank that alone writes it. The rank's own thread serves it, between its steps, while it waits, and whenever its
 * backward pass has finished a part; so nobody else ever sees a half-written weight.
 *
 * Who waits for weights that hold the steps of a slow rank may wait longer than ranks wait for one that is silent. So it hears now and then
 * that they are not there yet, and says that it has read that: no lane ever carries more than two such messages at a time, and what it asked
 * for keeps its place before the next push.
 *
 * @param silenceNanos
 *   how long a rank that waits is left without a word
 */
private[algorithm] final class ShardServer(
    transport: Transport,
    lanes: Seq[ShardLanes],
    gradientCodec: Codec,
    parameterCodec: Codec,
    val rule: ShardRule,
    silenceNanos: Long
) {
  private val weights = rule.shard.weights
  private val gradient = new FlatBuffer(rule.shard.length)

  /** Where nobody else sees the weights, or as they are, nothing is rounded. */
  private val exact = parameterCodec.lossless || lanes.isEmpty
  private val seen = new ShardImage(ShardReply.HeaderBytes, parameterCodec, if (exact) 0 else rule.shard.length)
  private val workers = lanes.map(new Worker(_))

  private final class Worker(val lanes: ShardLanes) {
    private val image = new ShardImage(ShardReply.HeaderBytes, parameterCodec, rule.shard.length)
    private val notYet = ShardServer.notYet()
    private var requests, replies = 0L
    private var held: ByteBuffer = _
    private var flags, required = 0L
    private var waiting = false

    /** It was told that it must wait, and has not said yet that it has read that. */
    private var unread = false
    private var heardAt, toldAt = System.nanoTime()
    var drained = false

    /** Who has drained asks for nothing before all have, and may have left after the last step. */
    def expects: Option[(Lane, Long)] = if (held == null && !drained) Some((lanes.request, requests)) else None

    /** Takes a request, if one is here. Those of ranks that have drained once more than this one wait until it has, too. */
    def take(round: Long): Boolean = {
      if (held == null && transport.hasArrived(lanes.request, requests)) {
        held = transport.receive(lanes.request, requests)
        heardAt = System.nanoTime()
      }
      val takes = held != null && word(ShardRequest.RoundAt) <= round
      if (takes) {
        if ((word(ShardRequest.FlagsAt) & ShardRequest.WaitsOn) != 0) unread = false else begin()
        transport.release(lanes.request, requests)
        held = null
        requests += 1
      }
      takes
    }

    private def begin(): Unit = {
      flags = word(ShardRequest.FlagsAt)
      required = word(ShardRequest.RequiredAt)
      if ((flags & ShardRequest.Pushes) != 0) {
        ShardImage.decode(held, ShardRequest.HeaderBytes, gradientCodec, gradient.floats)
        rule.push(lanes.worker, gradient.floats, word(ShardRequest.ClockAt), word(ShardRequest.VersionAt))
      }
      rule.knows(lanes.worker, word(ShardRequest.ClockAt))
      waiting = true
      toldAt = System.nanoTime()
    }

    private def word(at: Int): Long = held.duplicate().order(ByteOrder.nativeOrder()).getLong(held.position() + at)

    def answer(): Unit = {
      val drains = (flags & ShardRequest.Drains) != 0
      // Once all have drained this rank may leave, and what a rank has yet to say would find nobody.
      if (waiting && rule.stamp >= required && !(drains && unread)) {
        // The rank had the last reply before it sent its request, so nobody reads this memory any more.
        if ((flags & ShardRequest.Fetches) != 0) image.encode(weights, None) else image.empty()
        image.bytes.putLong(ShardReply.StampAt, rule.stamp).putLong(ShardReply.VersionAt, rule.version)
        transport.send(lanes.reply, replies, image.bytes)
        replies += 1
        waiting = false
        toldAt = System.nanoTime()
        if (drains) drained = true
      }
    }

    /** It has read the last such message before it gets another, so nobody reads this memory any more. */
    def comfort(now: Long): Unit = if (waiting && !unread && now - toldAt > silenceNanos) {
      transport.send(lanes.reply, replies, notYet)
      replies += 1
      unread = true
      toldAt = now
    }

    /** Whether it is its turn to say something, and has been since before `time`, without a word. */
    def isSilent(time: Long): Boolean =
      held == null && !waiting && !drained && heardAt - time < 0 && toldAt - time < 0
  }

  /**
   * Deals with all requests that are here; does not wait. Who waits for weights gets them before the next push changes them: so with a
   * bound of 0 all ranks compute a step on the same weights.
   *
   * @param changed
   *   called after each request
   */
  def serve(round: Long, changed: () => Unit): Unit = {
    workers.foreach { worker =>
      if (worker.take(round)) {
        answer()
        changed()
      }
    }
    val now = System.nanoTime()
    workers.foreach(_.comfort(now))
  }

  /** Answers all whose weights are ready. */
  def answer(): Unit = workers.foreach(_.answer())

  /** Ranks whose turn it has been since before `time` (of `System.nanoTime`) to say something, and that have not. */
  def silent(time: Long): Seq[Int] = workers.filter(_.isSilent(time)).map(_.lanes.worker)

  /** What may arrive. */
  def expected: Seq[(Lane, Long)] = workers.flatMap(_.expects)

  /** The weights as all ranks see them. */
  def read(target: FloatBuffer): Unit =
    if (exact) FloatOps.copy(weights, target)
    else {
      seen.encode(weights, None)
      seen.decode(target)
    }

  /** Whether all other ranks have what they drain for. */
  def allDrained: Boolean = workers.forall(_.drained)
  def drainedAll(): Unit = workers.foreach(_.drained = false)
}

private object ShardServer {
  private def notYet(): ByteBuffer = ByteBuffer
    .allocateDirect(ShardReply.HeaderBytes)
    .order(ByteOrder.nativeOrder())
    .putLong(ShardReply.StampAt, ShardReply.NotYet)
}

/** What a server makes of the gradients that reach it. */
private[algorithm] trait ShardRule {
  def shard: OwnedShard

  /** A run begins, or goes on, with step number `step`. */
  def beginAt(step: Long): Unit

  /**
   * Rank `from` has pushed.
   *
   * @param clock
   *   steps of the rank's that the shard knows then
   * @param known
   *   version of the weights that (the oldest of) it was computed on
   */
  def push(from: Int, gradient: FloatBuffer, clock: Long, known: Long): Unit

  /** The shard knows `clock` steps of rank `from`. */
  def knows(from: Int, clock: Long): Unit

  /** Steps that the shard's weights hold. */
  def stamp: Long

  /** Updates made so far. */
  def version: Long
}

/**
 * Each push moves the weights at once. The learning rate is that of the step that the workers are at on average: their clocks count the steps that
 * are in the weights, however many pushes brought them.
 *
 * @param workers
 *   ranks that compute: the first ones
 */
private[algorithm] final class AtOnce(val shard: OwnedShard, workers: Int) extends ShardRule {
  private val clocks = new Array[Long](workers)
  var version = 0L

  /** By number of updates that a gradient did not know of when it arrived; the last place: as many or more. */
  val staleness = new Array[Long](AtOnce.MostStaleness + 1)

  def beginAt(step: Long): Unit = java.util.Arrays.fill(clocks, step)
  def knows(from: Int, clock: Long): Unit = if (from < clocks.length) clocks(from) = clock

  /** Steps of every worker's. */
  def stamp: Long = {
    var least = Long.MaxValue
    var i = 0
    while (i < clocks.length) { least = math.min(least, clocks(i)); i += 1 }
    least
  }

  def push(from: Int, gradient: FloatBuffer, clock: Long, known: Long): Unit = {
    staleness(math.min(version - known, AtOnce.MostStaleness.toLong).toInt) += 1
    shard.update(gradient, clocks.sum / workers)
    version += 1
  }
}

private[algorithm] object AtOnce { val MostStaleness = 1023 }

/**
 * A step's gradients are summed until enough ranks have sent theirs; what comes later is dropped.
 *
 * @param size
 *   ranks that compute: the first ones
 * @param quorum
 *   ranks that a step waits for
 * @param rows
 *   of a step (first) that a rank (second) computes on
 */
private[algorithm] final class FirstOf(val shard: OwnedShard, size: Int, quorum: Int, rows: (Long, Int) => Int)
    extends ShardRule {
  shard.begin()
  private var ranks = 0
  private var summed = 0L
  private var current = 0L

  /** Gradients that came too late. */
  var dropped = 0L

  def beginAt(step: Long): Unit = current = step
  def knows(from: Int, clock: Long): Unit = ()
  def stamp: Long = current
  def version: Long = current

  def push(from: Int, gradient: FloatBuffer, clock: Long, known: Long): Unit =
    if (clock - 1 < current) dropped += 1
    else {
      FloatOps.addInto(shard.gradient, gradient)
      ranks += 1
      summed += rows(current, from)
      // The ranks that came first may have had no rows, in an epoch's last step.
      if (ranks == size || (ranks >= quorum && summed > 0)) step()
    }

  private def step(): Unit = {
    val all = (0 until size).map(rows(current, _).toLong).sum
    if (summed < all) shard.scale((all.toDouble / summed).toFloat)
    shard.update(current)
    shard.begin()
    ranks = 0
    summed = 0
    current += 1
  }
}
