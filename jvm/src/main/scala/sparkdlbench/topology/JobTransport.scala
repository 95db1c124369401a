package sparkdlbench.topology

import sparkdlbench.config.Settings
import sparkdlbench.rank.{Exchange, ExchangeMemory, JobRanks, RunContext}
import sparkdlbench.transport.TransportVariant

/** A transport of the job-per-step shape: the training loop runs in the driver. */
trait JobTransport extends TransportVariant {

  /** The topologies that it can carry. */
  def topologies: Set[String]

  /** None when it can carry out these settings, whose topology is one of its own; otherwise why not and what to do. */
  def refuses(settings: Settings): Option[String] = None

  /** Whether whoever updates weights has all of them, and so the lengths of whole layers (`LayerwiseOptimizer`). */
  def updatesWhole(settings: Settings): Boolean = false

  /** @param topology one of `topologies` */
  def exchange(group: JobRanks, topology: Topology): Exchange

  /** What the exchange needs besides the weights, gradient and engine of each rank. Without any memory being taken. */
  def memory(setup: RunContext, topology: Topology): ExchangeMemory
}
