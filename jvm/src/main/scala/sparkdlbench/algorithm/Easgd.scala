package sparkdlbench.algorithm

import sparkdlbench.config.{Key, RunKeys, Settings}
import sparkdlbench.metrics.Phase
import sparkdlbench.rank.{RankContext, RunContext}
import sparkdlbench.topology.Topology
import sparkdlbench.transport.{RankGroups, Transport}
import sparkdlbench.vector.{FlatBuffer, FloatOps}

/**
 * Elastic averaging SGD, synchronous (Zhang, Choromanska and LeCun, "Deep learning with elastic averaging SGD", NIPS 2015,
 * equations 5 and 6): each rank i takes `easgd.tau` steps of its own optimiser, then it and a centre that all share pull each
 * other, where x are the rank's weights, c the centre, η the learning rate of the configuration and α = η ρ:
 * {{{
 * d_i = α (x_i − c)
 * x_i = x_i − d_i
 * c   = c + Σ d_i
 * }}}
 * Evaluated and kept is the centre; the ranks' own weights differ for good.
 */
final class Easgd extends Algorithm {
  import Easgd._

  def name = "easgd"
  def doc = "Workers take steps of their own; every tau steps they and a shared centre pull each other"
  def staleness = "the ranks' weights differ by design; the centre is exchanged by all at once"
  override def keys: Seq[Key[_]] = Seq(rho, tau, SyncSgd.bucketBytes)

  override def refuses(settings: Settings): Option[String] = {
    val (rate, workers) = (settings(RunKeys.learningRate), settings(RunKeys.workers))
    val moves = settings(rho) * rate * workers
    if (moves > 1)
      Some(
        s"easgd.rho = ${settings(rho)} with learning rate $rate and $workers workers makes the centre move by $moves of its " +
          s"distance from the workers' mean, and above 1 it swings. Set easgd.rho to at most ${1 / (rate * workers)}, or to 0."
      )
    else None
  }

  def kept(optimizer: Seq[String]): Seq[String] = LocalSteps.kept(optimizer)

  def start(rank: RankContext, transport: Transport, topology: Topology): RankAlgorithm =
    new EasgdRank(rank, transport, topology)

  /** The centre, and the rank's weights while the centre is evaluated. */
  def memory(setup: RunContext, topology: Topology, groups: RankGroups): AlgorithmMemory =
    SharedVector.memory(setup, topology, groups, vectors = 2, setup.codec)
}

object Easgd {
  val tau: Key[Int] = Key.int("easgd.tau", "10", 1, "Steps that a worker takes between two pulls (easgd)")
  val rho: Key[Double] = Key.number(
    "easgd.rho",
    "0",
    0,
    "Strength of the pull: alpha = rho · learning rate; 0: such that alpha times the workers is 0.9, as in the paper"
  )

  /** α of the paper's equations. */
  private[algorithm] def alpha(settings: Settings, workers: Int): Float =
    (if (settings(rho) == 0) 0.9 / workers else settings(rho) * settings(RunKeys.learningRate)).toFloat
}

private final class EasgdRank(rank: RankContext, transport: Transport, topology: Topology)
    extends OwnWeightsRank(transport.size) {
  private val setup = rank.setup
  private val alpha = Easgd.alpha(setup.settings, transport.size)
  private val ways = rank.gradients
  protected val steps: LocalSteps = new LocalSteps(rank, transport.size)
  private val center = new FlatBuffer(rank.parameters.length)
  protected val shared: SharedVector = SharedVector.over(topology, transport, rank, center, setup.codec)

  def step(step: Long): Double = {
    rank.timer.switch(Phase.Send)
    shared.flush()
    val loss = steps.step(step)
    if ((step + 1) % setup.settings(Easgd.tau) == 0) pull()
    loss
  }

  private def pull(): Unit = {
    rank.timer.switch(Phase.Encode)
    FloatOps.copy(rank.parameters.floats, ways.floats)
    FloatOps.addScaledInto(ways.floats, center.floats, -1f)
    FloatOps.scale(ways.floats, alpha)
    FloatOps.addScaledInto(rank.parameters.floats, ways.floats, -1f)
    shared.add()
    exchanges += 1
  }

  def drain(): Unit = {
    shared.flush()
    steps.show(engine => FloatOps.copy(center.floats, engine.floats))
  }
}
