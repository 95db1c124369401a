package sparkdlbench.algorithm

import sparkdlbench.collective.NumberSums
import sparkdlbench.config.{Key, Settings}
import sparkdlbench.data.BatchPlan
import sparkdlbench.metrics.Phase
import sparkdlbench.optimizer.Clipping
import sparkdlbench.rank.{OwnedShard, RankContext, RunContext, Snapshot, StateRange}
import sparkdlbench.topology.{Collective, Ps, Topology}
import sparkdlbench.transport.{RankGroups, Transport}

/**
 * Synchronous mini-batch SGD: all ranks' gradients are summed in every step before any weight changes. The owner of a range
 * updates it, so the optimiser's state is sharded over the ranks (Dai et al., SoCC 2019; ZeRO stage 1, Rajbhandari et al., SC
 * 2020). Staleness 0.
 */
final class SyncSgd extends Algorithm {
  def name = "sync-sgd"
  def doc = "Gradients of all workers are summed in every step; the same as one worker with the whole batch"
  def staleness = "0"
  override def keys: Seq[Key[_]] =
    Seq(SyncSgd.bucketBytes, Clipping.norm, BackupWorkers.count, BatchShares.kind, BatchShares.every)
  override def ranksMayIdle: Boolean = true
  override def sumsEveryStep: Boolean = true
  override def refuses(settings: Settings): Option[String] =
    BackupWorkers.refuses(settings).orElse(BatchShares.refuses(settings))
  override def rowsAtOnce(settings: Settings, plan: BatchPlan): Int = BatchShares.rowsAtOnce(settings, plan)
  override def refusesModel(setup: RunContext): Option[String] =
    if (setup.settings(BackupWorkers.count) > 0) ShardRank.refusesModel(setup)
    else Ps.refusesBuckets(setup.settings, setup.spec.parameterCount, SyncSgd.bucketLength(setup.settings))

  def kept(optimizer: Seq[String]): Seq[String] = OwnedShard.kept(optimizer)

  def start(rank: RankContext, transport: Transport, topology: Topology): RankAlgorithm =
    if (rank.setup.settings(BackupWorkers.count) > 0) new BackupRank(rank, transport)
    else SyncSgd.together(rank, transport, topology)

  def memory(setup: RunContext, topology: Topology, groups: RankGroups): AlgorithmMemory =
    if (setup.settings(BackupWorkers.count) > 0) ShardRank.memory(setup)
    else SyncSgd.ownedMemory(setup, topology, groups)
}

object SyncSgd {
  private[algorithm] def bucketLength(settings: Settings): Int = math.max(1, settings(bucketBytes) / 4)

  val bucketBytes: Key[Int] = Key.int(
    "bucket_bytes",
    "1048576",
    4,
    "Bytes of gradient that travel as one bucket: sending overlaps the backward pass, and reducing overlaps receiving"
  )

  /** A rank that waits for all others in every step; a collective call. */
  private[algorithm] def together(rank: RankContext, transport: Transport, topology: Topology): RankAlgorithm = {
    val settings = rank.setup.settings
    // Around all that follows, so that a server hears of its workers in every wait.
    val signs =
      if (!Ps.own(settings)) None
      else {
        val every = rank.setup.timeoutMillis * 1000000L / ShardExchange.WordsInTime
        Some(new Heartbeats(transport, Ps.servers(transport.size, settings), every))
      }
    val base = signs.getOrElse(transport)
    def sums(wanted: Boolean, most: Int) = if (wanted) Some(new NumberSums(base, most)) else None
    val norm = sums(settings(Clipping.norm) > 0, 1)
    val layers = sums(rank.setup.optimizer.layerwise, 2 * rank.setup.spec.layout.size)
    val shares = sums(BatchShares.bySpeed(settings), rank.setup.workers)
      .map(new SpeedShares(rank, _, settings(BatchShares.every)))
    new SyncSgdRank(rank, base, topology, norm, layers, shares, signs)
  }

  /** What it needs. */
  private[algorithm] def ownedMemory(setup: RunContext, topology: Topology, groups: RankGroups): AlgorithmMemory = {
    val bucketLength = SyncSgd.bucketLength(setup.settings)
    val collective =
      topology.memory(groups, setup.spec.parameterCount, bucketLength, setup.codec, setup.parameterCodec)
    val copies = if (setup.parameterCodec.lossless) 0 else 4 * collective.owned
    AlgorithmMemory.owned(setup, collective, copies, collective.owned)
  }
}

/**
 * @param norm
 *   sums the squares of the whole gradient, where it is clipped
 * @param layers
 *   sums the squares of each layer's weights and gradient, where the optimiser needs them
 * @param shares
 *   deals out the rows by speed, where that is asked for
 * @param signs
 *   tells servers of their own that this worker lives
 */
private final class SyncSgdRank(
    rank: RankContext,
    transport: Transport,
    topology: Topology,
    norm: Option[NumberSums],
    layers: Option[NumberSums],
    shares: Option[SpeedShares],
    signs: Option[Heartbeats]
) extends RankAlgorithm {
  private val settings = rank.setup.settings
  private val codec = rank.setup.codec
  private val weightCodec = rank.setup.parameterCodec
  private val parameters = rank.parameters
  private val collective: Collective =
    topology.bind(
      transport,
      rank.gradients,
      parameters,
      SyncSgd.bucketLength(settings),
      codec,
      weightCodec
    )
  private val starts = Array.tabulate(collective.buckets)(collective.range(_)._1)

  /** The owned part of each bucket. */
  private val shards = Array.tabulate(collective.buckets) { bucket =>
    val (from, until) = collective.owned(bucket)
    OwnedShard.within(
      from,
      parameters.floatSlice(from, until),
      rank.gradients.floatSlice(from, until),
      rounded = !weightCodec.lossless,
      rank.newOptimizer(from, until)
    )
  }
  private var sequence = 0L

  /** Steps made since the run began. */
  private var made = 0L

  def step(step: Long): Double = {
    val timer = rank.timer
    timer.switch(Phase.Send)
    signs.foreach(_.stepBegins())
    collective.flush()
    var sent = 0
    def compute(): Double =
      if (rank.rows(step) > rank.setup.rowsAtOnce) rank.computeGradientInParts(step)
      else
        rank.computeGradient(
          step,
          (from, _) => {
            timer.switch(Phase.Encode)
            while (sent < starts.length && starts(sent) >= from) {
              collective.contribute(sent, sequence)
              sent += 1
            }
            timer.switch(Phase.Compute)
          }
        )
    val loss = shares.fold(compute())(_.timed(step)(compute()))
    while (sent < starts.length) { collective.contribute(sent, sequence); sent += 1 }
    exchange(step)
    sequence += 1
    made = step + 1
    loss
  }

  private def exchange(step: Long): Unit = {
    val timer = rank.timer
    var index = 0
    val whole = norm.isDefined || layers.isDefined
    if (whole) {
      timer.switch(Phase.Reduce)
      shards.indices.foreach(collective.reduce(_, sequence))
      norm.foreach(clip)
      layers.foreach(measure)
    }
    while (index < shards.length) {
      timer.switch(Phase.Reduce)
      if (!whole) collective.reduce(index, sequence)
      timer.switch(Phase.Update)
      shards(index).update(step)
      timer.switch(Phase.Encode)
      collective.publish(index, sequence)
      index += 1
    }
    timer.switch(Phase.Decode)
    index = 0
    while (index < shards.length) { collective.collect(index, sequence); index += 1 }
  }

  private def clip(norm: NumberSums): Unit = {
    val square = Array(shards.map(_.gradientSquares).sum)
    norm.sum(square)
    Clipping.shortening(settings, square(0)).foreach(factor => shards.foreach(_.scale(factor)))
  }

  private def measure(layers: NumberSums): Unit = {
    val squares = new Array[Double](2 * rank.setup.spec.layout.size)
    shards.foreach(_.addSquares(squares))
    layers.sum(squares)
    shards.foreach(_.squaresAre(squares))
  }

  def state: Seq[StateRange] = {
    collective.flush()
    shards.toSeq.flatMap(_.state) ++ collective.residual.map(left =>
      StateRange(Residuals.name(rank.rank), 0, left.toArray)
    )
  }

  def restore(snapshot: Snapshot): Unit = {
    val vector = snapshot.vectors(parameters.length)
    parameters.floats.put(0, vector(OwnedShard.Weights))
    if (collective.roundsParameters) Rounding.asSent(weightCodec, parameters)
    shards.foreach(_.restore(vector))
    collective.residual.foreach { own =>
      own.floats.put(0, Residuals.restored(snapshot, rank.rank, transport.size, own.length, collective.encoded))
    }
  }

  def drain(): Unit = collective.flush()

  /** After the last step servers may have left already. */
  override def alive(): Unit = if (made < rank.setup.totalSteps) signs.foreach(_.alive())

  override def counts: Map[String, Seq[Long]] = shares.map(each => "share_rows" -> each.dealt).toMap

  def weights: Seq[(Int, Array[Float])] = shards.toSeq.map(shard => (shard.from, shard.values))
}
