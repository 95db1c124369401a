package sparkdlbench.algorithm

import sparkdlbench.codec.Codec
import sparkdlbench.common.RunFailedException
import sparkdlbench.metrics.{Phase, PhaseTimer}
import sparkdlbench.rank.OwnedShard
import sparkdlbench.transport.{Lane, Transport}
import sparkdlbench.vector.{FlatBuffer, FloatOps, Slices}

import java.nio.{ByteBuffer, ByteOrder}

/**
 * When a rank pushes and fetches.
 *
 * @param push
 *   steps between two pushes, at least
 * @param fetch
 *   steps between two fetches, at least
 * @param bound
 *   step c begins only on weights that hold all ranks' steps below c − bound (stale-synchronous parallel); None: no such bound
 */
private[algorithm] final case class ShardPace(push: Int, fetch: Int, bound: Option[Int])

/**
 * One rank's side of weights that lie in shards at some of the ranks, without steps in common. Each rank has at most one request on
 * its way to each server, and sends the next once it has the reply: so no message can overwrite one that is still read, memory is
 * bounded, and a lane keeps the transport's rule without anybody's waiting. What a rank cannot push yet it goes on accruing.
 *
 * It waits for others only where `bound` asks for it and to `drain`, and serves its own shard meanwhile. How long others take to catch up is not
 * bounded, but how long they are silent is: who waits hears from the servers now and then, and the servers from every rank that they owe no
 * answer, every twelfth of `timeoutMillis`. So a rank may take most of that for a step, and one that is dead is noticed within it.
 *
 * @param timeoutMillis
 *   longest silence of a rank whose turn it is to say something, while this one waits
 * @param parameters
 *   what the engine computes on; fetched weights are written here, between steps
 * @param newRule
 *   of the shard [from, until), whose weights are the first argument
 */
private[algorithm] final class ShardExchange(
    transport: Transport,
    parameters: FlatBuffer,
    servers: IndexedSeq[Int],
    pace: ShardPace,
    gradientCodec: Codec,
    parameterCodec: Codec,
    newRule: (FlatBuffer, Int, Int) => ShardRule,
    timer: PhaseTimer,
    timeoutMillis: Long
) {
  import transport.{rank, size}
  private val silenceNanos = timeoutMillis * 1000000L / ShardExchange.WordsInTime
  private val slices = Slices(parameters.length, servers.size)
  private val accrued = new FlatBuffer(parameters.length)

  /** What the codec left out of this rank's pushes. */
  val residual: Option[FlatBuffer] = if (gradientCodec.keepsResidual) Some(new FlatBuffer(parameters.length)) else None
  private val lanes =
    ShardExchange.lanes(size, servers, slices, gradientCodec, parameterCodec, transport.lanesOpened)
  private val ownShard = servers.indexOf(rank)
  val server: Option[ShardServer] = if (ownShard < 0) None else Some(newServer())
  private val own: Option[View] = server.map(_ => new View(ownShard))
  private val clients = for {
    shard <- servers.indices if shard != ownShard
    lane <- lanes(shard).filter(_.worker == rank)
  } yield new ShardClient(shard, lane)
  private val views: Seq[View] = clients ++ own
  transport.open(lanes.flatten.flatMap(each => Seq(each.request, each.reply)), _ => None)

  /** Steps whose gradients are accrued or pushed. */
  private var done = 0L
  private var round = 0L

  /** Steps of all ranks that its server's weights must hold for this rank to take them; Long.MaxValue: it does not wait for them. */
  private var ownRequired = Long.MaxValue
  private val ownTurn = () => if (server.exists(_.rule.stamp >= ownRequired)) fetchOwn()
  private var drainedAt = 0L

  /** By number of steps by which the weights of a step lacked some rank's; the last place: as many or more. */
  val lag = new Array[Long](AtOnce.MostStaleness + 1)

  /** A shard as this rank sees it. */
  private class View(shard: Int) {
    val target = parameters.floatSlice(slices.from(shard), slices.until(shard))
    val gradient = accrued.floatSlice(slices.from(shard), slices.until(shard))
    var stamp, version = 0L
    private var accruing = false

    /** Of the weights of the oldest gradient that is accrued. */
    var accruedVersion = 0L

    def accrues: Boolean = accruing
    def accrue(): Unit = if (!accruing) { accruing = true; accruedVersion = version }
    def pushed(): Unit = { accruing = false; FloatOps.fill(gradient, 0f) }
  }

  /** A shard at another rank. */
  private final class ShardClient(index: Int, lane: ShardLanes) extends View(index) {
    private val image = new ShardImage(ShardRequest.HeaderBytes, gradientCodec, slices.size(index))
    private val left = residual.map(_.floatSlice(slices.from(index), slices.until(index)))
    private val waitsOn = ByteBuffer.allocateDirect(ShardRequest.HeaderBytes).order(ByteOrder.nativeOrder())
    private var sent, received = 0L
    private var asked = 0L
    private var waiting = false
    private var spokeAt, heardAt = System.nanoTime()
    var clock = 0L
    var pushDue, fetchDue, drained = false

    def server: Int = lane.request.to
    def isWaiting: Boolean = waiting
    def expects: (Lane, Long) = (lane.reply, received)

    /** Whether it has left this rank without a word since before `time`. */
    def isSilent(time: Long): Boolean = waiting && spokeAt - time < 0 && heardAt - time < 0

    def request(push: Boolean, fetch: Boolean, required: Long, drain: Boolean = false): Unit = {
      // The server had the last request before it replied, so nobody reads this memory any more.
      val known = accruedVersion
      if (push) {
        image.encode(gradient, left)
        pushed()
        pushDue = false
      } else image.empty()
      if (!accrues) clock = done
      if (fetch) fetchDue = false
      asked = (if (push) ShardRequest.Pushes else 0L) | (if (fetch) ShardRequest.Fetches else 0L) |
        (if (drain) ShardRequest.Drains else 0L)
      image.bytes
        .putLong(ShardRequest.FlagsAt, asked)
        .putLong(ShardRequest.RoundAt, round)
        .putLong(ShardRequest.ClockAt, clock)
        .putLong(ShardRequest.VersionAt, known)
        .putLong(ShardRequest.RequiredAt, required)
      say(image.bytes)
      waiting = true
    }

    private def say(message: ByteBuffer): Unit = {
      transport.send(lane.request, sent, message)
      sent += 1
      spokeAt = System.nanoTime()
    }

    /** A word for a server that has heard nothing of this rank for long. Who has drained there asks for nothing before all have. */
    def sign(): Unit = if (!waiting && !drained && System.nanoTime() - spokeAt > silenceNanos)
      request(push = false, fetch = false, required = 0)

    def takeReplies(): Unit = while (waiting && transport.hasArrived(lane.reply, received)) {
      val message = transport.receive(lane.reply, received)
      val words = message.duplicate().order(ByteOrder.nativeOrder())
      val told = words.getLong(message.position() + ShardReply.StampAt)
      heardAt = System.nanoTime()
      waiting = told == ShardReply.NotYet
      if (!waiting && (asked & ShardRequest.Fetches) != 0) {
        stamp = told
        version = words.getLong(message.position() + ShardReply.VersionAt)
        ShardImage.decode(message, ShardReply.HeaderBytes, parameterCodec, target)
      }
      if (!waiting && (asked & ShardRequest.Drains) != 0) drained = true
      transport.release(lane.reply, received)
      received += 1
      // The server has read the last such message before it says so again, so nobody reads this memory any more.
      if (waiting) say(waitsOn.putLong(ShardRequest.FlagsAt, ShardRequest.WaitsOn).putLong(ShardRequest.RoundAt, round))
    }
  }

  /** A run begins, or goes on, with step number `step` and the weights that are in `parameters`, full precision apart. */
  def beginAt(step: Long): Unit = {
    done = step
    drainedAt = step
    views.foreach(_.stamp = step)
    clients.foreach(_.clock = step)
    server.foreach(_.rule.beginAt(step))
  }

  /** Before the rank computes on `parameters`; waits where the bound asks for it. */
  def beforeStep(step: Long): Unit = {
    transport.flush()
    progress()
    pace.bound.foreach(bound => await(step - bound))
    val behind = step - views.map(_.stamp).min
    lag(math.max(0L, math.min(behind, AtOnce.MostStaleness.toLong)).toInt) += 1
  }

  /** Waits until all servers have answered: then the next push holds the gradient of one step alone. */
  def awaitReplies(): Unit = {
    val since = System.nanoTime()
    while (clients.exists(_.isWaiting)) {
      progress()
      if (clients.exists(_.isWaiting)) awaitSomething(since)
    }
  }

  /**
   * Whether some shard has left step number `step` behind. What this rank could compute for it would be too late there, and on newer
   * weights than the step's for the others. Those do without it: all whose gradients have ended the step there send them theirs, too.
   */
  def isOver(step: Long): Boolean = {
    if (server.exists(shard => own.exists(_.stamp < shard.rule.stamp))) fetchOwn()
    views.exists(_.stamp > step)
  }

  /** The step of a rank that serves and computes nothing: until its shard holds all workers' first `steps`. */
  def serveUntil(steps: Long): Unit = {
    transport.flush()
    val since = System.nanoTime()
    progress()
    while (server.exists(_.rule.stamp < steps)) {
      awaitSomething(since)
      progress()
    }
    done = steps
  }

  /**
   * Between steps, after `drain`, while this rank is about something else for long, such as an evaluation: it serves, and lets the servers hear
   * that it lives.
   */
  def alive(): Unit = {
    serve()
    clients.foreach(_.takeReplies())
    clients.foreach(_.sign())
  }

  /** Steps that this rank has made or left out. */
  def steps: Long = done

  /** Instead of `afterStep`, where nothing was computed. */
  def skip(steps: Long): Unit = done = steps

  /** Deals with the requests that are here; may be called while `parameters` are read. */
  def serve(): Unit = server.foreach { shard =>
    val outer = timer.switch(Phase.Update)
    shard.serve(round, ownTurn)
    timer.switch(outer)
  }

  /** After step number `done` − 1. @param factor of the gradient */
  def afterStep(steps: Long, gradient: FlatBuffer, factor: Float): Unit = {
    timer.switch(Phase.Encode)
    FloatOps.addScaledInto(accrued.floats, gradient.floats, factor)
    views.foreach(_.accrue())
    done = steps
    if (done % pace.push == 0) {
      pushOwn()
      clients.foreach(_.pushDue = true)
    }
    if (done % pace.fetch == 0) {
      requireOwn(needed)
      clients.foreach(_.fetchDue = true)
    }
    progress()
  }

  /** All that all ranks have accrued is pushed, and all hold the same weights. A collective call, after as many steps of each. */
  def drain(): Unit = if (drainedAt != done) {
    transport.flush()
    timer.switch(Phase.Reduce)
    pushOwn()
    val since = System.nanoTime()
    var fetched = own.isEmpty
    def complete = fetched && clients.forall(_.drained) && server.forall(_.allDrained)
    while (!complete) {
      progress()
      clients.filter(client => !client.isWaiting && !client.drained).foreach { client =>
        client.request(push = client.accrues, fetch = true, required = done, drain = true)
      }
      if (!fetched && server.exists(_.rule.stamp >= done)) {
        fetchOwn()
        fetched = true
      }
      if (!complete) awaitSomething(since)
    }
    server.foreach(_.drainedAll())
    clients.foreach(_.drained = false)
    round += 1
    drainedAt = done
    transport.flush()
  }

  private def progress(): Unit = {
    serve()
    val outer = timer.switch(Phase.Decode)
    clients.foreach(_.takeReplies())
    timer.switch(Phase.Encode)
    clients.filter(client => !client.isWaiting && (client.pushDue || client.fetchDue)).foreach { client =>
      client.request(client.pushDue && client.accrues, client.fetchDue, if (client.fetchDue) needed else 0)
    }
    clients.foreach(_.sign())
    timer.switch(outer)
    ()
  }

  /** Steps of all ranks that the next step's weights must hold. */
  private def needed: Long = pace.bound.fold(0L)(bound => math.max(0L, done - bound))

  private def await(stamp: Long): Unit = {
    val since = System.nanoTime()
    def late = views.exists(_.stamp < stamp)
    while (late) {
      progress()
      clients.filter(client => client.stamp < stamp && !client.isWaiting).foreach { client =>
        client.request(client.pushDue && client.accrues, fetch = true, stamp)
      }
      if (own.exists(_.stamp < stamp)) requireOwn(stamp)
      if (late) awaitSomething(since)
    }
  }

  /** @param since when this rank began to wait */
  private def awaitSomething(since: Long): Unit = {
    val limit = System.nanoTime() - timeoutMillis * 1000000L
    // What others say ends the transport's own wait, and must not hide that one says nothing.
    if (since - limit < 0) {
      val silent = (clients.filter(_.isSilent(limit)).map(_.server) ++ server.toSeq.flatMap(_.silent(limit))).distinct
      if (silent.nonEmpty) throw new RunFailedException(ShardExchange.noWord(rank, silent.sorted, timeoutMillis))
    }
    val expected = clients.filter(_.isWaiting).map(_.expects) ++ server.toSeq.flatMap(_.expected)
    transport.awaitAny(expected.toIndexedSeq)
  }

  private def pushOwn(): Unit = for (view <- own; shard <- server) {
    if (view.accrues) {
      shard.rule.push(rank, view.gradient, done, view.accruedVersion)
      view.pushed()
    }
    shard.rule.knows(rank, done)
    shard.answer()
  }

  /** Takes its server's weights, at once or as soon as they hold that. */
  private def requireOwn(stamp: Long): Unit =
    if (server.exists(_.rule.stamp >= stamp)) fetchOwn() else ownRequired = stamp

  private def fetchOwn(): Unit = for (view <- own; shard <- server) {
    shard.read(view.target)
    ownRequired = Long.MaxValue
    view.stamp = shard.rule.stamp
    view.version = shard.rule.version
  }

  private def newServer(): ShardServer = {
    val (from, until) = ownRange
    val weights = OwnedShard.copyOf(parameters.floatSlice(from, until))
    val rule = newRule(weights, from, until)
    new ShardServer(transport, lanes(ownShard), gradientCodec, parameterCodec, rule, silenceNanos)
  }

  /** The values that this rank serves; empty where it serves none. */
  def ownRange: (Int, Int) = if (ownShard < 0) (0, 0) else (slices.from(ownShard), slices.until(ownShard))
}

private[algorithm] object ShardExchange {

  /** How often within the longest silence a rank says that it lives, where it has nothing else to say. */
  private[algorithm] val WordsInTime = 12

  private def noWord(rank: Int, silent: Seq[Int], millis: Long): String =
    s"Rank $rank waited $millis ms for ${silent.map("rank " + _).mkString(" and ")}, of which it has heard nothing meanwhile. Look into the log of that " +
      "executor; if it is only slow, raise spark.sparkdl.timeout (seconds): a rank needs to be done with a step within three quarters of it."

  /** By shard: the lanes to and from every rank but its server. @param first number of the first lane */
  def lanes(
      size: Int,
      servers: IndexedSeq[Int],
      slices: Slices,
      gradientCodec: Codec,
      parameterCodec: Codec,
      first: Int = 0
  ): IndexedSeq[IndexedSeq[ShardLanes]] = servers.indices.map { shard =>
    val server = servers(shard)
    val request = ShardImage.capacity(ShardRequest.HeaderBytes, gradientCodec, slices.size(shard))
    val reply = ShardImage.capacity(ShardReply.HeaderBytes, parameterCodec, slices.size(shard))
    (0 until size).filter(_ != server).zipWithIndex.map { case (worker, index) =>
      val id = first + 2 * (shard * (size - 1) + index)
      ShardLanes(
        worker,
        Lane(id, worker, server, request, s"gradient for shard $shard"),
        Lane(id + 1, server, worker, reply, s"weights of shard $shard")
      )
    }
  }
}
