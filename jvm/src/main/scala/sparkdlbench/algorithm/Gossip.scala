package sparkdlbench.algorithm

import sparkdlbench.codec.{Codec, Fp32}
import sparkdlbench.config.{Key, Settings}
import sparkdlbench.metrics.Phase
import sparkdlbench.rank.{RankContext, RunContext, Snapshot}
import sparkdlbench.topology.{Inbox, Topology}
import sparkdlbench.transport.{Lane, RankGroups, Transport}
import sparkdlbench.vector.{FlatBuffer, FloatOps}

import java.nio.ByteOrder
import scala.util.Random

/**
 * Gossip: every `gossip.tau` steps of its own optimiser a rank takes the mean of its weights and its neighbours', and no rank ever
 * waits for more than those. Neighbours are the two of a ring (decentralised SGD, Lian et al., NIPS 2017, algorithm 1, with the
 * mixing weights 1/3), or one that a seeded shuffle of all ranks pairs it with anew each time (Boyd et al., "Randomized gossip
 * algorithms", IEEE Trans. Inf. Theory 2006; Jin et al., "How to scale distributed deep learning?", 2016); of an odd number of
 * ranks one then stays alone.
 *
 * Evaluated and kept is the mean of all ranks' weights, which is exchanged for evaluations and checkpoints alone. Weights between
 * neighbours travel in fp32, whatever the codec.
 */
final class Gossip extends Algorithm {
  import Gossip._

  def name = "gossip"
  def doc = "Workers average their weights with neighbours alone, on a ring or in random pairs"
  def staleness = "the ranks' weights differ; what one learns reaches all others over several exchanges"
  override def keys: Seq[Key[_]] = Seq(neighbours, tau, SyncSgd.bucketBytes)

  def kept(optimizer: Seq[String]): Seq[String] = LocalSteps.kept(optimizer)

  override def refusesModel(setup: RunContext): Option[String] = {
    val bytes = 4L * setup.spec.parameterCount
    if (bytes <= MostBytes) None
    else
      Some(
        s"Algorithm gossip sends all ${setup.spec.parameterCount} weights of model ${setup.spec.name} as one message of $bytes bytes, and the two that a " +
          s"transport keeps room for must fit into one buffer: at most $MostBytes bytes each. Use a smaller model, or algorithm local-sgd, whose weights travel " +
          "in buckets."
      )
  }

  def start(rank: RankContext, transport: Transport, topology: Topology): RankAlgorithm =
    new GossipRank(rank, transport, topology)

  /** The mean, the rank's weights while it is evaluated, and what neighbours send. */
  def memory(setup: RunContext, topology: Topology, groups: RankGroups): AlgorithmMemory = {
    val needs = SharedVector.memory(setup, topology, groups, vectors = 2, meanCodec(setup))
    val most = Neighbours.of(setup.settings, groups.size).most
    val vectors = Inbox(most, 4L * setup.spec.parameterCount, destination = false, withinGroup = false)
    needs.copy(collective = needs.collective.copy(inboxes = needs.collective.inboxes :+ vectors))
  }
}

object Gossip {

  /** Two of them and their heads are less than 2 GiB, the JVM's largest buffer. */
  private val MostBytes = (1L << 30) - 4096

  val tau: Key[Int] = Key.int("gossip.tau", "1", 1, "Steps that a worker takes between two exchanges (gossip)")
  val neighbours: Key[String] = Key.choice(
    "gossip.neighbours",
    "ring",
    Seq("ring", "random"),
    "With whom a worker exchanges: the two beside it, or one drawn anew each time (gossip)"
  )

  /** The mean is for evaluation, and no way of anybody's: it is not worth a codec that keeps residuals. */
  private[algorithm] def meanCodec(setup: RunContext): Codec = if (setup.codec.keepsResidual) new Fp32 else setup.codec
}

/** Who exchanges with whom; every rank knows it of every rank. */
private[algorithm] trait Neighbours {

  /** Of `rank` in exchange number `round`, in ascending order. */
  def at(rank: Int, round: Long): Seq[Int]

  /** All that `rank` ever exchanges with. */
  def all(rank: Int): Seq[Int]

  /** How many that are, at most. */
  def most: Int = all(0).size
}

private[algorithm] object Neighbours {
  def of(settings: Settings, size: Int): Neighbours =
    if (settings(Gossip.neighbours) == "ring") new Ring(size)
    else new Pairs(size, settings(sparkdlbench.config.RunKeys.seed))

  final class Ring(size: Int) extends Neighbours {
    def at(rank: Int, round: Long): Seq[Int] = all(rank)
    def all(rank: Int): Seq[Int] =
      Seq((rank + size - 1) % size, (rank + 1) % size).distinct.filter(_ != rank).sorted
  }

  final class Pairs(size: Int, seed: Long) extends Neighbours {
    def all(rank: Int): Seq[Int] = (0 until size).filter(_ != rank)
    def at(rank: Int, round: Long): Seq[Int] = {
      val order = new Random(new Random(seed ^ (round * 0x9e3779b97f4a7c15L)).nextLong()).shuffle((0 until size).toList)
      order.grouped(2).collectFirst { case List(a, b) if a == rank || b == rank => Seq(a + b - rank) }.getOrElse(Nil)
    }
  }
}

/** Lanes for whole vectors to and from neighbours. Making it opens them: a collective call. */
private final class NeighbourLanes(transport: Transport, plan: Neighbours, length: Int) {
  private val rank = transport.rank
  private val lanes: Map[(Int, Int), Lane] = {
    val first = transport.lanesOpened
    val pairs = for (from <- 0 until transport.size; to <- plan.all(from)) yield (from, to)
    pairs.zipWithIndex.map { case ((from, to), index) =>
      (from, to) -> Lane(first + index, from, to, 4 * length, "weights of a neighbour")
    }.toMap
  }
  private val sent, received = scala.collection.mutable.Map.empty[Int, Long].withDefaultValue(0L)
  transport.open(lanes.values.toSeq.sortBy(_.id), _ => None)

  /** `vector` must not change before the next `flush`. */
  def sendTo(neighbour: Int, vector: FlatBuffer): Unit = {
    transport.send(lanes((rank, neighbour)), sent(neighbour), vector.bytes)
    sent(neighbour) += 1
  }

  def take(neighbour: Int)(use: java.nio.FloatBuffer => Unit): Unit = {
    val lane = lanes((neighbour, rank))
    val message = transport.receive(lane, received(neighbour))
    use(message.duplicate().order(ByteOrder.nativeOrder()).asFloatBuffer())
    transport.release(lane, received(neighbour))
    received(neighbour) += 1
  }
}

private final class GossipRank(rank: RankContext, transport: Transport, topology: Topology)
    extends OwnWeightsRank(transport.size) {
  private val setup = rank.setup
  private val plan = Neighbours.of(setup.settings, transport.size)
  private val neighbourLanes = new NeighbourLanes(transport, plan, rank.parameters.length)
  private val sending = rank.gradients
  protected val steps: LocalSteps = new LocalSteps(rank, transport.size)
  private val mean = new FlatBuffer(rank.parameters.length)
  protected val shared: SharedVector = SharedVector.over(topology, transport, rank, mean, Gossip.meanCodec(setup))
  private var stale = false

  def step(step: Long): Double = {
    rank.timer.switch(Phase.Send)
    transport.flush()
    shared.flush()
    val loss = steps.step(step)
    stale = true
    val tau = setup.settings(Gossip.tau)
    if ((step + 1) % tau == 0) exchange((step + 1) / tau)
    loss
  }

  private def exchange(round: Long): Unit = {
    val neighbours = plan.at(rank.rank, round)
    if (neighbours.nonEmpty) {
      rank.timer.switch(Phase.Encode)
      FloatOps.copy(rank.parameters.floats, sending.floats)
      rank.timer.switch(Phase.Send)
      neighbours.foreach(neighbourLanes.sendTo(_, sending))
      rank.timer.switch(Phase.Reduce)
      neighbours.foreach(neighbourLanes.take(_)(FloatOps.addInto(rank.parameters.floats, _)))
      FloatOps.scale(rank.parameters.floats, 1f / (1 + neighbours.size))
      exchanges += 1
    }
  }

  /** The mean of all, for evaluation; the ranks' own weights go on from where they are. */
  def drain(): Unit = {
    takeMean()
    steps.show(engine => FloatOps.copy(mean.floats, engine.floats))
    shared.flush()
  }

  /** Another algorithm may go on from the checkpoint, and has its weights from there alone. */
  override protected def beforeState(): Unit = takeMean()

  /** A collective call. */
  private def takeMean(): Unit = {
    transport.flush()
    shared.flush()
    if (stale) {
      FloatOps.copy(steps.own.floats, sending.floats)
      FloatOps.scale(sending.floats, 1f / transport.size)
      shared.replace()
      stale = false
    }
  }

  override protected def wentOn(snapshot: Snapshot): Unit = stale = true
}
