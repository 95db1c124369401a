package sparkdlbench.job

import sparkdlbench.common.{MemoryKind, MemoryPart}
import sparkdlbench.rank.{Exchange, ExchangeMemory, JobRanks, RunContext}
import sparkdlbench.topology.{JobTransport, Topology}
import sparkdlbench.transport.TransportVariant
import sparkdlbench.vector.Slices

/**
 * BigDL's way (Dai et al., "BigDL: A Distributed Deep Learning Framework for Big Data", SoCC 2019, section 3.3), and the
 * first rung of the in-band ladder: two Spark jobs an iteration. Job 1: every rank fetches the N weight slices, computes its
 * gradient and puts it into its BlockManager as N slices. Job 2: the owner of a slice fetches its N parts, sums them in rank
 * order, updates its weights (optimiser state sharded at the owner) and puts the new slice.
 *
 * Bytes a worker sends a step: 2(N-1)/N · S. Driver messages a step: two jobs, N(N+1) block registrations, and one location
 * look-up for each of the 2N(N-1) fetches. Staleness 0.
 */
final class BlockManagerTransport extends TransportVariant with JobTransport {
  def name = "block-manager"
  def doc = "In-band, BigDL's way: two Spark jobs per step, slices in the BlockManager, found through the driver"
  def inBand = true
  def topologies: Set[String] = Set("sliced")
  def exchange(group: JobRanks, topology: Topology): Exchange = new BlockManagerExchange(group)

  /** A rank's slice, summed and in full precision, and all slices as they are fetched. */
  def memory(setup: RunContext, topology: Topology): ExchangeMemory = {
    val parameters = setup.spec.parameterCount
    val owned = Slices(parameters, setup.workers).maxSize
    val encoded = Seq(setup.codec -> parameters, setup.parameterCodec -> owned).collect {
      case (codec, values) if !codec.isRaw => codec.maxBytes(values)
    }.sum
    ExchangeMemory(
      Seq(
        MemoryPart("owned slice, summed and in full precision", MemoryKind.Direct, 8L * owned),
        MemoryPart("encoded values", MemoryKind.Direct, encoded),
        ExchangeMemory.residual(setup),
        MemoryPart("slices as they are fetched", MemoryKind.HeapAtTimes, setup.parameterCodec.maxBytes(parameters)),
        ExchangeMemory.optimizer(setup, owned)
      )
    )
  }
}

private final class BlockManagerExchange(group: JobRanks) extends Exchange {
  private var newest = BlockManagerRank.NoStep

  {
    val placements = group.placements
    group.run(state => state.keep(new BlockManagerRank(state, placements)))
  }

  def step(step: Long): Double = {
    val previous = newest
    val losses = group.run { state =>
      val rank = state.side[BlockManagerRank]
      rank.fetchWeights(previous)
      rank.gradient(step)
    }
    group.run(state => state.side[BlockManagerRank].update(step))
    newest = step
    losses.sum
  }

  def synchronize(): Unit = {
    val step = newest
    group.run(state => state.side[BlockManagerRank].fetchWeights(step))
    ()
  }

  def weights(): Array[Float] = group.run(state => state.side[BlockManagerRank].ownedWeights).toArray.flatten

  /** The blocks go with the ranks' sides. */
  override def close(): Unit = ()
}
