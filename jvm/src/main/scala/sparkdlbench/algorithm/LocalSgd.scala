package sparkdlbench.algorithm

import sparkdlbench.config.{Key, Settings}
import sparkdlbench.metrics.Phase
import sparkdlbench.rank.{RankContext, RunContext, Snapshot}
import sparkdlbench.topology.Topology
import sparkdlbench.transport.{RankGroups, Transport}
import sparkdlbench.vector.{FlatBuffer, FloatOps}

/**
 * Local SGD: each rank takes `local.tau` steps of its own optimiser on its share of the rows, then all go on from the mean of
 * their weights (SparkNet, Moritz et al., ICLR 2016, algorithm 1; Stich, ICLR 2019). With `local.from_epoch` the first epochs
 * average after every step: post-local SGD (Lin et al., ICLR 2020). An epoch's end averages, too, since there the model is
 * evaluated.
 *
 * What travels is each rank's way since the last mean, d = (w − mean) / N, and the new mean: mean + Σ d. So lossy codecs round
 * the way and not the weights, and residuals mean the same as for gradients. With plain SGD, momentum and tau = 1 the weights are
 * sync-sgd's up to rounding: each rank's gradient is N times its share of the batch's, and the mean of N such steps is the step
 * along their sum.
 */
final class LocalSgd extends Algorithm {
  import LocalSgd._

  def name = "local-sgd"
  def doc = "Each worker takes tau steps of its own, then all go on from the mean of their weights"
  def staleness = "up to tau − 1 steps of the other workers"
  override def keys: Seq[Key[_]] = Seq(tau, fromEpoch, SyncSgd.bucketBytes)

  def kept(optimizer: Seq[String]): Seq[String] = LocalSteps.kept(optimizer)

  def start(rank: RankContext, transport: Transport, topology: Topology): RankAlgorithm =
    new LocalSgdRank(rank, transport, topology)

  /** The mean. */
  def memory(setup: RunContext, topology: Topology, groups: RankGroups): AlgorithmMemory =
    SharedVector.memory(setup, topology, groups, vectors = 1, setup.codec)
}

object LocalSgd {
  val tau: Key[Int] = Key.int("local.tau", "8", 1, "Steps that a worker takes between two averages (local-sgd)")
  val fromEpoch: Key[Int] =
    Key.int("local.from_epoch", "0", 0, "Epoch, from 0, before which local-sgd averages after every step")

  /** Whether all ranks average after this step, which is number `step` of the run, from 0. */
  private[algorithm] def averagesAfter(step: Long, stepsPerEpoch: Int, settings: Settings): Boolean =
    step < settings(fromEpoch).toLong * stepsPerEpoch || (step + 1) % settings(tau) == 0
}

private final class LocalSgdRank(rank: RankContext, transport: Transport, topology: Topology)
    extends OwnWeightsRank(transport.size) {
  private val setup = rank.setup
  private val (parameters, ways) = (rank.parameters, rank.gradients)
  protected val steps: LocalSteps = new LocalSteps(rank, transport.size)

  /** The weights that this rank's steps began from: the last mean, as it travelled. */
  private val mean = new FlatBuffer(parameters.length)
  protected val shared: SharedVector = SharedVector.over(topology, transport, rank, mean, setup.codec)
  private var moved = false

  def step(step: Long): Double = {
    rank.timer.switch(Phase.Send)
    shared.flush()
    val loss = steps.step(step)
    moved = true
    if (LocalSgd.averagesAfter(step, setup.stepsPerEpoch, setup.settings)) average()
    loss
  }

  private def average(): Unit = {
    rank.timer.switch(Phase.Encode)
    FloatOps.copy(parameters.floats, ways.floats)
    FloatOps.addScaledInto(ways.floats, mean.floats, -1f)
    FloatOps.scale(ways.floats, 1f / transport.size)
    shared.add()
    FloatOps.copy(mean.floats, parameters.floats)
    moved = false
    exchanges += 1
  }

  /** An epoch's end, and the run's, are averages, too. */
  def drain(): Unit = {
    shared.flush()
    if (moved) average()
    shared.flush()
  }

  /**
   * A checkpoint at a mean goes on at that mean, as the run that wrote it did: one mean more would be no other, but would send what the
   * codec has left out so far.
   */
  override protected def wentOn(snapshot: Snapshot): Unit = moved = !steps.allAre(snapshot, mean)
}
