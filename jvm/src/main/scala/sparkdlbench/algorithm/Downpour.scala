package sparkdlbench.algorithm

import sparkdlbench.config.{CheckpointKeys, Key, RunKeys, Settings, Variants}
import sparkdlbench.metrics.Phase
import sparkdlbench.optimizer.{LearningRateSchedule, OptimizerVariant, SgdVariant}
import sparkdlbench.rank.{OwnedShard, RankContext, RunContext}
import sparkdlbench.topology.Topology
import sparkdlbench.transport.{RankGroups, Transport}
import sparkdlbench.vector.FloatOps

/**
 * Downpour SGD (Dean et al., "Large scale distributed deep networks", NIPS 2012, section 4.1): workers compute on weights of their own, push
 * what gradients they have accrued to the shards of a parameter server every `downpour.n_push` steps, and fetch weights from there
 * every `downpour.n_fetch` steps, without waiting for each other. A shard's server applies each push when it arrives. With
 * `downpour.stale` ≥ 0 no worker begins a step on weights that lack another's steps older than that: stale-synchronous parallel (Ho et al., "More
 * effective distributed ML via a stale synchronous parallel parameter server", NIPS 2013).
 *
 * A pushed gradient is the sum over its steps of the mean over the worker's own rows, and moves the weights by 1/N of the learning rate, so that
 * the N workers' pushes of a step together are a step of sync-sgd; with `stale` = 0, plain SGD and both intervals 1 they are that up to rounding.
 * The learning rate is that of the step that the workers are at on average, by the steps that the shard's weights hold.
 * Between fetches a worker also moves its own copy where the optimizer is plain SGD, as in the paper; with others (AdaGrad, of which the
 * paper says that it makes this robust) it computes on what it fetched.
 *
 * Each push of a shard is counted by its staleness: the updates that the shard has got since the weights were fetched on which the (oldest) gradient
 * was computed. Each step is counted by its lag: the steps by which its weights lacked the slowest worker's.
 */
final class Downpour extends Algorithm {
  import Downpour._

  def name = "downpour"
  def doc =
    "Workers push gradients to a parameter server's shards and fetch weights from there without waiting for each other"
  def staleness =
    "unbounded, measured (counts.staleness in the results); in steps at most downpour.stale where that is set"
  override def keys: Seq[Key[_]] = Seq(nPush, nFetch, stale)
  override def ranksMayIdle: Boolean = true
  def kept(optimizer: Seq[String]): Seq[String] = OwnedShard.kept(optimizer)

  override def refuses(settings: Settings): Option[String] = {
    val optimizer = Variants.find[OptimizerVariant]("optimizer", settings(RunKeys.optimizer))
    if (settings(RunKeys.topology) != "ps")
      Some(
        s"Algorithm downpour keeps the weights at servers that each worker asks when it likes, and topology ${settings(RunKeys.topology)} has steps that all " +
          "workers take together. Set topology = ps (and ps.shards)."
      )
    else if (optimizer.layerwise)
      Some(
        s"Optimizer ${optimizer.name} needs the lengths of whole layers, and a server of algorithm downpour updates its shard alone. Use optimizer.name = adagrad, " +
          "or sgd."
      )
    else if (optimizer.countsUpdates)
      Some(
        s"Optimizer ${optimizer.name} takes the number of a step for the number of its updates, by which it corrects its moments, and a server of algorithm " +
          "downpour updates its shard with each push of each worker: its first steps would be far too long. Use optimizer.name = adagrad, or sgd."
      )
    else if (settings(stale) >= 0 && settings(stale) < settings(nPush) - 1)
      Some(
        s"downpour.stale = ${settings(stale)} with downpour.n_push = ${settings(nPush)}: within that many steps of each other all workers would wait " +
          s"for steps that nobody has pushed yet. Set downpour.stale to ${settings(nPush) - 1} or more, to -1 for no bound, or downpour.n_push lower."
      )
    else if (settings(CheckpointKeys.folder).nonEmpty && settings(CheckpointKeys.everySeconds) > 0)
      Some(
        "checkpoint.every_seconds has all workers wait for the first one's clock, and with algorithm downpour they would wait for each other's shards meanwhile. " +
          "Set checkpoint.every alone."
      )
    else None
  }

  override def refusesModel(setup: RunContext): Option[String] = ShardRank.refusesModel(setup)

  def start(rank: RankContext, transport: Transport, topology: Topology): RankAlgorithm =
    new DownpourRank(rank, transport)

  def memory(setup: RunContext, topology: Topology, groups: RankGroups): AlgorithmMemory = ShardRank.memory(setup)
}

object Downpour {
  val nPush: Key[Int] = Key.int(
    "downpour.n_push",
    "1",
    1,
    "Steps between two pushes of a worker's gradients (downpour); more where a server has not answered yet"
  )
  val nFetch: Key[Int] =
    Key.int("downpour.n_fetch", "1", 1, "Steps between two fetches of weights by a worker (downpour)")
  val stale: Key[Int] = Key.int(
    "downpour.stale",
    "-1",
    -1,
    "Steps by which a worker may be ahead of what its weights hold of every other's (downpour); -1: any number"
  )
}

private final class DownpourRank(rank: RankContext, transport: Transport) extends ShardRank(rank, transport.size) {
  private val workers = setup.workers
  private val bound = Some(settings(Downpour.stale)).filter(_ >= 0)
  private val shared = // N pushes make a step
    settings.updated(RunKeys.learningRate, (settings(RunKeys.learningRate) / workers).toString)
  private var rule: Option[AtOnce] = None
  protected val exchange: ShardExchange = new ShardExchange(
    transport,
    rank.parameters,
    servers,
    ShardPace(settings(Downpour.nPush), settings(Downpour.nFetch), bound),
    setup.codec,
    setup.parameterCodec,
    (weights, from, until) => {
      val optimizer = setup.newOptimizer(from, until, shared)
      rule = Some(new AtOnce(OwnedShard.unsummed(from, weights, optimizer), workers))
      rule.get
    },
    rank.timer,
    setup.timeoutMillis
  )
  private val localRate: Option[Long => Float] =
    if (
      settings(RunKeys.optimizer) == "sgd" && settings(SgdVariant.momentum) == 0 && setup.spec.layout.forall(
        _.rate == 1
      )
    ) Some(LearningRateSchedule.learningRate(shared))
    else None

  protected def compute(step: Long): Double = {
    exchange.beforeStep(step)
    val loss = rank.computeGradient(step, (_, _) => exchange.serve())
    rank.timer.switch(Phase.Update)
    localRate.foreach(rate =>
      FloatOps.addScaledInto(rank.parameters.floats, rank.gradients.floats, -rate(step) * workers)
    )
    exchange.afterStep(step + 1, rank.gradients, workers.toFloat)
    loss
  }

  override def counts: Map[String, Seq[Long]] = {
    def upToLast(counts: Array[Long]): Seq[Long] = counts.take(counts.lastIndexWhere(_ > 0) + 1).toSeq
    Map("lag" -> upToLast(exchange.lag)) ++ rule.map(each => "staleness" -> upToLast(each.staleness))
  }
}
