package sparkdlbench.algorithm

import sparkdlbench.ConfigurationException
import sparkdlbench.config.{Key, Settings}
import sparkdlbench.data.BatchPlan
import sparkdlbench.metrics.Phase
import sparkdlbench.optimizer.{Clipping, LayerwiseOptimizer}
import sparkdlbench.rank.{RankContext, RunContext, Snapshot, StateRange}
import sparkdlbench.topology.{Collective, Ps, Topology}
import sparkdlbench.transport.{RankGroups, SummingTransport, Transport}
import sparkdlbench.vector.{FlatBuffer, FloatOps}

import scala.collection.mutable

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
  override def refuses(settings: Settings): Option[String] =
    BackupWorkers.refuses(settings).orElse(BatchShares.refuses(settings))
  override def rowsAtOnce(settings: Settings, plan: BatchPlan): Int = BatchShares.rowsAtOnce(settings, plan)
  override def refusesModel(setup: RunContext): Option[String] =
    if (setup.settings(BackupWorkers.count) > 0) ShardRank.refusesModel(setup)
    else Ps.refusesBuckets(setup.settings, setup.spec.parameterCount, SyncSgd.bucketLength(setup.settings))

  def kept(optimizer: Seq[String]): Seq[String] = "weights" +: optimizer.map("optimizer." + _)

  def start(rank: RankContext, transport: Transport, topology: Topology): RankAlgorithm =
    if (rank.setup.settings(BackupWorkers.count) > 0) new BackupRank(rank, transport)
    else together(rank, transport, topology)

  private def together(rank: RankContext, transport: Transport, topology: Topology): RankAlgorithm = {
    val settings = rank.setup.settings
    // The innermost, so that a server hears of its workers in every wait.
    val signs =
      if (!Ps.own(settings)) None
      else {
        val every = rank.setup.timeoutMillis * 1000000L / ShardExchange.WordsInTime
        Some(new LifeSigns(transport, Ps.servers(transport.size, settings), every))
      }
    val base = signs.getOrElse(transport)
    val norm = if (settings(Clipping.norm) == 0) None else Some(new SummingTransport(base, 1))
    val inner = norm.getOrElse(base)
    val tensors = 2 * rank.setup.spec.layout.size
    val layers = if (rank.setup.optimizer.layerwise) Some(new SummingTransport(inner, tensors)) else None
    val outer = layers.getOrElse(inner)
    val speeds =
      if (BatchShares.bySpeed(settings)) Some(new SummingTransport(outer, rank.setup.workers)) else None
    val shares = speeds.map(new SpeedShares(rank, _, settings(BatchShares.every)))
    new SyncSgdRank(rank, speeds.getOrElse(outer), topology, norm, layers, shares, signs)
  }

  def memory(setup: RunContext, topology: Topology, groups: RankGroups): AlgorithmMemory =
    if (setup.settings(BackupWorkers.count) > 0) ShardRank.memory(setup) else ownedMemory(setup, topology, groups)

  private def ownedMemory(setup: RunContext, topology: Topology, groups: RankGroups): AlgorithmMemory = {
    val bucketLength = SyncSgd.bucketLength(setup.settings)
    val collective =
      topology.memory(groups, setup.spec.parameterCount, bucketLength, setup.codec, setup.parameterCodec)
    val copies = if (setup.parameterCodec.lossless) 0 else 4 * collective.owned
    AlgorithmMemory.owned(setup, collective, copies, collective.owned)
  }
}

object SyncSgd {
  private[algorithm] def lacks(snapshot: Snapshot, name: String): String =
    s"The checkpoint after step ${snapshot.step} holds no '$name'; it was written with another optimizer. Resume with the same optimizer settings."

  private[algorithm] def bucketLength(settings: Settings): Int = math.max(1, settings(bucketBytes) / 4)

  val bucketBytes: Key[Int] = Key.int(
    "bucket_bytes",
    "1048576",
    4,
    "Bytes of gradient that travel as one bucket: sending overlaps the backward pass, and reducing overlaps receiving"
  )
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
    norm: Option[SummingTransport],
    layers: Option[SummingTransport],
    shares: Option[SpeedShares],
    signs: Option[LifeSigns]
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
  private val buckets = Array.tabulate(collective.buckets)(new Bucket(_))
  private var sequence = 0L

  /** Steps made since the run began. */
  private var made = 0L

  /** The owned part of one bucket: its weights in fp32 and its optimiser. */
  private final class Bucket(val index: Int) {
    val (from, until) = collective.owned(index)
    val start: Int = collective.range(index)._1
    val gradient = rank.gradients.floatSlice(from, until)
    val weights = parameters.floatSlice(from, until)
    val optimizer = rank.newOptimizer(from, until)

    /** Full-precision weights apart, where the travelling ones are rounded. */
    val master: FlatBuffer = if (weightCodec.lossless) null else new FlatBuffer(until - from)
    if (master != null) FloatOps.copy(weights, master.floats)

    def addSquares(into: Array[Double]): Unit =
      layerwise.foreach(_.addSquares(if (master == null) weights else master.floats, gradient, into))

    def squaresAre(whole: Array[Double]): Unit = layerwise.foreach(_.squaresAre(whole))

    private def layerwise: Option[LayerwiseOptimizer] = Some(optimizer).collect { case each: LayerwiseOptimizer =>
      each
    }

    def update(step: Long): Unit =
      if (master == null) optimizer.update(weights, gradient, step)
      else {
        optimizer.update(master.floats, gradient, step)
        FloatOps.copy(master.floats, weights)
      }

    def values: Array[Float] = {
      val copied = new Array[Float](until - from)
      (if (master == null) weights else master.floats).get(0, copied)
      copied
    }

    def state: Seq[StateRange] =
      StateRange("weights", from, values) +:
        optimizer.state.toSeq.map { case (name, vector) => StateRange(s"optimizer.$name", from, vector.clone()) }

    def restore(vector: String => Array[Float]): Unit = {
      if (master != null) master.floats.put(0, vector("weights"), from, until - from)
      optimizer.state.foreach { case (name, own) =>
        System.arraycopy(vector(s"optimizer.$name"), from, own, 0, own.length)
      }
    }
  }

  def step(step: Long): Double = {
    val timer = rank.timer
    timer.switch(Phase.Send)
    signs.foreach(_.stepBegins())
    collective.flush()
    var sent = 0
    def compute(): Double = rank.computeGradient(
      step,
      (from, _) => {
        timer.switch(Phase.Encode)
        while (sent < buckets.length && buckets(sent).start >= from) {
          collective.contribute(sent, sequence)
          sent += 1
        }
        timer.switch(Phase.Compute)
      }
    )
    val loss = shares.fold(compute())(_.timed(step)(compute()))
    while (sent < buckets.length) { collective.contribute(sent, sequence); sent += 1 }
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
      buckets.indices.foreach(collective.reduce(_, sequence))
      norm.foreach(clip)
      layers.foreach(measure)
    }
    while (index < buckets.length) {
      timer.switch(Phase.Reduce)
      if (!whole) collective.reduce(index, sequence)
      timer.switch(Phase.Update)
      buckets(index).update(step)
      timer.switch(Phase.Encode)
      collective.publish(index, sequence)
      index += 1
    }
    timer.switch(Phase.Decode)
    index = 0
    while (index < buckets.length) { collective.collect(index, sequence); index += 1 }
  }

  private def clip(norm: SummingTransport): Unit = {
    val square = Array(buckets.map(bucket => FloatOps.sumOfSquares(bucket.gradient)).sum)
    norm.sum(square)
    Clipping.shortening(settings, square(0)).foreach { factor =>
      buckets.foreach(bucket => FloatOps.scale(bucket.gradient, factor))
    }
  }

  private def measure(layers: SummingTransport): Unit = {
    val squares = new Array[Double](2 * rank.setup.spec.layout.size)
    buckets.foreach(_.addSquares(squares))
    layers.sum(squares)
    buckets.foreach(_.squaresAre(squares))
  }

  def state: Seq[StateRange] = {
    collective.flush()
    buckets.toSeq.flatMap(_.state) ++ collective.residual.map(left =>
      StateRange(Residuals.name(rank.rank), 0, left.toArray)
    )
  }

  def restore(snapshot: Snapshot): Unit = {
    val length = parameters.length
    val vectors = mutable.Map.empty[String, Array[Float]]
    def vector(name: String): Array[Float] = vectors.getOrElseUpdate(
      name,
      snapshot.vector(name, length).getOrElse(throw new ConfigurationException(SyncSgd.lacks(snapshot, name)))
    )
    parameters.floats.put(0, vector("weights"))
    if (collective.roundsParameters) Rounding.asSent(weightCodec, parameters)
    buckets.foreach(_.restore(vector))
    collective.residual.foreach { own =>
      own.floats.put(0, Residuals.restored(snapshot, rank.rank, transport.size, own.length, collective.encoded))
    }
  }

  def drain(): Unit = collective.flush()

  /** After the last step servers may have left already. */
  override def alive(): Unit = if (made < rank.setup.totalSteps) signs.foreach(_.alive())

  override def counts: Map[String, Seq[Long]] = shares.map(each => "share_rows" -> each.dealt).toMap

  def weights: Seq[(Int, Array[Float])] = buckets.toSeq.map(bucket => (bucket.from, bucket.values))
}
