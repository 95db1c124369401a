package sparkdlbench.algorithm

import sparkdlbench.config.{Axis, Key, RunKeys, Settings, Variant, Variants}
import sparkdlbench.data.BatchPlan
import sparkdlbench.rank.{RankContext, RunContext, Snapshot, StateRange}
import sparkdlbench.topology.{CollectiveMemory, Topology}
import sparkdlbench.transport.{RankGroups, Transport}

/** When workers exchange, and what. */
trait Algorithm extends Variant {

  /** Steps by which the weights a gradient was computed on may be behind the newest ones; 0 for synchronous algorithms. */
  def staleness: String

  /** None where it can train with these settings, otherwise why not and what to do. */
  def refuses(settings: Settings): Option[String] = None

  /** The same once data and model are known. */
  def refusesModel(setup: RunContext): Option[String] = None

  /**
   * Whether a step is the sum of all ranks' gradients, by which the weights of all change alike: what a transport that makes Spark
   * jobs per step can carry, and what the length of the whole gradient is known in.
   */
  def sumsEveryStep: Boolean = false

  /** Whether it can train where the driver holds the whole model (`atDriver`): over topology `tree`, which sums on the way there. */
  def isAtDriver: Boolean = sumsEveryStep

  /** Its side there; where `isAtDriver`. */
  def atDriver(passes: DriverPasses): DriverSide = new SumAtDriver(passes)

  /** Bytes of its own vectors on the driver's heap then, besides weights, gradient and the optimiser's state. */
  def driverHeap(setup: RunContext): Long = 0

  /** Whether a step takes all training rows, whatever `batch` says. */
  def fullBatch: Boolean = false

  /** Whether it trains as it should where some ranks compute nothing. */
  def ranksMayIdle: Boolean = false

  /** Rows that a rank computes at once, at most. */
  def rowsAtOnce(settings: Settings, plan: BatchPlan): Int = plan.maxShare

  /**
   * Names of vectors that a checkpoint must hold so that a run can go on from it.
   *
   * @param optimizer
   *   names of the optimiser's vectors
   */
  def kept(optimizer: Seq[String]): Seq[String]

  /** One rank of a one-stage run; a collective call. */
  def start(rank: RankContext, transport: Transport, topology: Topology): RankAlgorithm

  /** What `start` will need at the rank that needs most, besides weights and gradient. */
  def memory(setup: RunContext, topology: Topology, groups: RankGroups): AlgorithmMemory
}

/**
 * @param weightCopies
 *   bytes of weights kept beside those that the engine computes with
 * @param optimized
 *   number of weights whose optimiser is at this rank
 * @param written
 *   values, besides what a codec left out, that the rank writes into a checkpoint
 * @param read
 *   the same of all ranks
 * @param heap
 *   bytes of the algorithm's own vectors on the heap
 */
final case class AlgorithmMemory(
    collective: CollectiveMemory,
    weightCopies: Long,
    optimized: Long,
    written: Long,
    read: Long,
    heap: Long = 0
)

object AlgorithmMemory {

  /** Of an algorithm whose weights have one owner each, who updates them. */
  def owned(setup: RunContext, collective: CollectiveMemory, weightCopies: Long, owned: Long): AlgorithmMemory = {
    val values = 1L + setup.optimizerValues
    AlgorithmMemory(collective, weightCopies, owned, owned * values, setup.spec.parameterCount * values)
  }
}

/** One rank's side of an algorithm while it trains (one-stage shape). */
trait RankAlgorithm {

  /**
   * One step on this rank's share of the global batch.
   *
   * @return
   *   the sum of the losses of this rank's rows
   */
  def step(step: Long): Double

  /** Makes the engine's parameters those to evaluate and to keep; a collective call, after which `step` may go on. */
  def drain(): Unit

  /**
   * Called now and then while the rank evaluates, so that ranks that do not, and wait for it, hear that it lives. Sends nothing as long as the
   * evaluation takes less than a good part of `timeout`.
   */
  def alive(): Unit = ()

  /**
   * Copies of all that has to be kept to go on from here, and that this rank answers for: `weights` in full precision, the
   * optimiser's vectors, the residuals of what it sent.
   */
  def state: Seq[StateRange]

  /** Goes on from a checkpoint, which any number of ranks may have written; before the first `step`. */
  def restore(snapshot: Snapshot): Unit

  /** What this rank has counted, by name; a run's results hold the ranks' sums, place by place. */
  def counts: Map[String, Seq[Long]] = Map.empty

  /** The parts of the trained weights in full precision that this rank answers for: (first value, values). Ranks' parts cover the vector. */
  def weights: Seq[(Int, Array[Float])]
}

final class AlgorithmAxis extends Axis {
  def place = 1
  def name = "algorithm"
  def key: Key[String] = RunKeys.algorithm
  def variants: Seq[Variant] = Variants.all[Algorithm]
}
