package sparkdlbench.rank

import sparkdlbench.common.{MemoryKind, MemoryPart}

/**
 * Memory that a job-per-step exchange needs.
 *
 * @param executor
 *   in each executor, however many ranks it has
 * @param result
 *   bytes of the results of a step's largest job, which `spark.driver.maxResultSize` bounds
 */
final case class ExchangeMemory(
    worker: Seq[MemoryPart],
    executor: Seq[MemoryPart] = Nil,
    driver: Seq[MemoryPart] = Nil,
    result: Long = 0
)

object ExchangeMemory {

  /** What a rank's codec left out of its gradients. */
  def residual(setup: RunContext): MemoryPart = {
    val bytes = if (setup.codec.keepsResidual) 4L * setup.spec.parameterCount else 0L
    MemoryPart("what the codec left out", MemoryKind.Direct, bytes)
  }

  /** @param owned number of weights that are updated there */
  def optimizer(setup: RunContext, owned: Int): MemoryPart =
    MemoryPart("optimiser's state", MemoryKind.Heap, 4L * owned * setup.optimizerValues)
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

  /** Makes the ranks' `RankSide.state` that after the last step, where it is not yet. */
  def settle(): Unit = ()

  /** Whether the driver holds the run's whole state, and ranks hold none of it. */
  def isAtDriver: Boolean = false

  /** Copies of what the driver answers for in a checkpoint. */
  def state: Seq[StateRange] = Nil

  /** Takes what the driver answers for from a checkpoint; before the first step, after the ranks' own `restore`. */
  def restore(snapshot: Snapshot): Unit = ()

  /** Makes every rank's engine hold the weights after the last step. */
  def synchronize(): Unit

  /** The weights after the last step in fp32, flat, gathered from their owners. */
  def weights(): Array[Float]

  /** Payload bytes by channel that no rank has counted. */
  def unrankedBytes: Map[String, Long] = Map.empty

  /** What its algorithm counted, by name, place by place. */
  def counts: Map[String, Seq[Long]] = Map.empty

  /** Removes what the exchange has left in Spark; also called after a failure. */
  override def close(): Unit
}
