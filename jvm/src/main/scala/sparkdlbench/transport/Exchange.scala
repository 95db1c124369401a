package sparkdlbench.transport

import sparkdlbench.config.Settings
import sparkdlbench.train.RankGroup

/** A transport of the job-a-step shape: the training loop runs in the driver. */
trait JobTransport extends TransportVariant {

  /** The topologies that it can carry. */
  def topologies: Set[String]

  /** None when it can carry out these settings, whose topology is one of its own; otherwise why not and what to do. */
  def refuses(settings: Settings): Option[String] = None

  /** Whether whoever updates weights has all of them, and so the lengths of whole layers (`LayerwiseOptimizer`). */
  def updatesWhole(settings: Settings): Boolean = false

  def exchange(group: RankGroup): Exchange
}

/** Brings a group of ranks from the weights of one step to those of the next, by Spark jobs. Driver side. */
trait Exchange extends AutoCloseable {

  /**
   * One step: every rank computes its gradient, the sum is made, owners update, everybody can see the new weights.
   *
   * @return
   *   the sum of the losses of all rows of the global batch
   */
  def step(step: Long): Double

  /** Makes every rank's engine hold the weights after the last step. */
  def synchronize(): Unit

  /** The weights after the last step in fp32, flat, gathered from their owners. */
  def weights(): Array[Float]

  /** Payload bytes by channel that no rank has counted. */
  def unrankedBytes: Map[String, Long] = Map.empty

  /** Removes what the exchange has left in Spark; also called after a failure. */
  override def close(): Unit
}
