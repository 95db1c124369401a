package sparkdlbench.algorithm

import sparkdlbench.config.Variant
import sparkdlbench.topology.{CollectiveMemory, Topology}
import sparkdlbench.train.{RankState, RunSetup, Snapshot, StateRange}
import sparkdlbench.transport.{RankGroups, Transport}

/** When workers exchange, and what. */
trait Algorithm extends Variant {

  /** Steps by which the weights a gradient was computed on may be behind the newest ones; 0 for synchronous algorithms. */
  def staleness: String

  /** One rank of a one-stage run; a collective call. */
  def start(rank: RankState, transport: Transport, topology: Topology): RankAlgorithm

  /** What `start` will need at the rank that needs most, besides weights and gradient. */
  def memory(setup: RunSetup, topology: Topology, groups: RankGroups): AlgorithmMemory
}

/**
 * @param weightCopies
 *   bytes of weights kept in full precision beside those that travel
 */
final case class AlgorithmMemory(collective: CollectiveMemory, weightCopies: Long)

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
  def settle(): Unit

  /**
   * Copies of all that has to be kept to go on from here, and that this rank answers for: `weights` in full precision, the
   * optimiser's vectors, the residuals of what it sent.
   */
  def state: Seq[StateRange]

  /** Goes on from a checkpoint, which any number of ranks may have written; before the first `step`. */
  def restore(snapshot: Snapshot): Unit

  /** The parts of the trained weights in full precision that this rank answers for: (first value, values). Ranks' parts cover the vector. */
  def weights: Seq[(Int, Array[Float])]
}
