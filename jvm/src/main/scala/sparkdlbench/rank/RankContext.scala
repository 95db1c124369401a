package sparkdlbench.rank

import sparkdlbench.data.{BatchPlan, Shares}
import sparkdlbench.metrics.PhaseTimer
import sparkdlbench.optimizer.Optimizer
import sparkdlbench.vector.FlatBuffer

/** One rank of a run, as an algorithm sees it: what it computes with, its rows and its timer. */
trait RankContext {
  def setup: RunContext
  def rank: Int
  def plan: BatchPlan
  def timer: PhaseTimer

  /** False for a parameter server that has a task of its own: it reads no rows. */
  def computes: Boolean

  /** The engine's own. */
  def parameters: FlatBuffer
  def gradients: FlatBuffer

  /** For the values [`from`, `until`) of the gradients' sum, which is not finite where a step is to be left out. */
  def newOptimizer(from: Int, until: Int): Optimizer

  /** Rows that this rank computes in a step. */
  def rows(step: Long): Int

  /** All ranks call it before the same step. */
  def deal(shares: Shares): Unit

  /**
   * Loss and gradient of this rank's share of the step's global batch. The timer is left in the compute phase.
   *
   * @param step
   *   number of the step from the start of the run
   * @return
   *   the sum of the rows' losses
   */
  def computeGradient(step: Long, onBucketReady: (Int, Int) => Unit): Double

  /** The same `RunContext.rowsAtOnce` rows at a time, whose gradients are added up. */
  def computeGradientInParts(step: Long): Double
}
