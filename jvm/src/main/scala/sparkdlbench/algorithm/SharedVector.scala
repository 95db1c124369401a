package sparkdlbench.algorithm

import sparkdlbench.codec.Codec
import sparkdlbench.metrics.{Phase, PhaseTimer}
import sparkdlbench.optimizer.Optimizer
import sparkdlbench.rank.{OwnedShard, RankContext, RunContext, Snapshot, StateRange}
import sparkdlbench.topology.{Collective, Topology}
import sparkdlbench.transport.{RankGroups, Transport}
import sparkdlbench.vector.{FlatBuffer, FloatOps}

import java.nio.FloatBuffer

/**
 * A vector that all ranks hold and change together: the owners of its ranges add what all ranks contribute, in full precision,
 * and send the new values to everybody.
 *
 * @param contributions
 *   what this rank adds, the memory of its gradient; overwritten by a change
 * @param values
 *   the vector, as it travelled
 */
private[algorithm] final class SharedVector private (
    rank: RankContext,
    collective: Collective,
    contributions: FlatBuffer,
    values: FlatBuffer
) {
  private val timer: PhaseTimer = rank.timer

  /** The owned part of each bucket. */
  private val parts = Array.tabulate(collective.buckets) { bucket =>
    val (from, until) = collective.owned(bucket)
    val (travelling, sum) = (values.floatSlice(from, until), contributions.floatSlice(from, until))
    OwnedShard.within(from, travelling, sum, rounded = true, SharedVector.Adding)
  }
  private var sequence = 0L

  /** `values` becomes their sum with all ranks' contributions; a collective call. */
  def add(): Unit = change(replaces = false)

  /** `values` becomes the sum of all ranks' contributions; a collective call. */
  def replace(): Unit = change(replaces = true)

  private def change(replaces: Boolean): Unit = {
    timer.switch(Phase.Encode)
    parts.indices.foreach(collective.contribute(_, sequence))
    parts.indices.foreach { index =>
      timer.switch(Phase.Reduce)
      collective.reduce(index, sequence)
      timer.switch(Phase.Update)
      if (replaces) parts(index).replace() else parts(index).update(sequence)
      timer.switch(Phase.Encode)
      collective.publish(index, sequence)
    }
    timer.switch(Phase.Decode)
    parts.indices.foreach(collective.collect(_, sequence))
    sequence += 1
  }

  /** Until it returns, what this rank sent may still be on its way, and must not be written to. */
  def flush(): Unit = collective.flush()

  /** The owned ranges in full precision. */
  def weights: Seq[(Int, Array[Float])] = parts.toSeq.map(part => (part.from, part.values))

  def state: Seq[StateRange] =
    parts.toSeq.flatMap(_.state) ++
      collective.residual.map(left => StateRange(Residuals.name(rank.rank), 0, left.toArray))

  def restore(snapshot: Snapshot, whole: Array[Float], size: Int): Unit = {
    values.floats.put(0, whole)
    parts.foreach(_.restore(_ => whole))
    collective.residual.foreach { own =>
      own.floats.put(0, Residuals.restored(snapshot, rank.rank, size, own.length, collective.encoded))
    }
    if (collective.roundsParameters) Rounding.asSent(rank.setup.parameterCodec, values)
  }
}

private[algorithm] object SharedVector {

  /** What is contributed is added as it is. */
  private object Adding extends Optimizer {
    def update(weights: FloatBuffer, gradient: FloatBuffer, step: Long): Unit = FloatOps.addInto(weights, gradient)
    def state: Map[String, Array[Float]] = Map.empty
  }

  /** A collective call. @param codec in which contributions travel */
  def over(
      topology: Topology,
      transport: Transport,
      rank: RankContext,
      values: FlatBuffer,
      codec: Codec
  ): SharedVector = {
    val (contributions, setup) = (rank.gradients, rank.setup)
    FloatOps.copy(rank.parameters.floats, values.floats)
    val bucketLength = SyncSgd.bucketLength(setup.settings)
    val collective = topology.bind(transport, contributions, values, bucketLength, codec, setup.parameterCodec)
    new SharedVector(rank, collective, contributions, values)
  }

  /**
   * What such an algorithm needs: the vector's owned ranges in full precision, and an optimiser over all weights at every rank,
   * which a checkpoint has of every rank.
   *
   * @param vectors
   *   whole vectors besides the engine's own
   * @param codec
   *   as that of `over`
   */
  def memory(
      setup: RunContext,
      topology: Topology,
      groups: RankGroups,
      vectors: Int,
      codec: Codec
  ): AlgorithmMemory = {
    val parameters = setup.spec.parameterCount
    val bucketLength = SyncSgd.bucketLength(setup.settings)
    val collective = topology.memory(groups, parameters, bucketLength, codec, setup.parameterCodec)
    val ownValues = (1L + setup.optimizerValues) * parameters
    AlgorithmMemory(
      collective,
      4L * vectors * parameters + 4 * collective.owned,
      optimized = parameters.toLong,
      written = collective.owned + ownValues,
      read = parameters + setup.ranks * ownValues
    )
  }
}
