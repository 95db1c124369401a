package sparkdlbench.transport

import sparkdlbench.train.RankGroup

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
  def doc = "In-band, BigDL's way: two Spark jobs a step, slices in the BlockManager, found through the driver"
  def inBand = true
  def topologies: Set[String] = Set("sliced")
  def exchange(group: RankGroup): Exchange = new BlockManagerExchange(group)
}

private final class BlockManagerExchange(group: RankGroup) extends Exchange {
  private var newest = BlockManagerRank.NoStep

  {
    val placements = group.placements
    group.run { state => state.exchangeState = new BlockManagerRank(state, placements) }
  }

  def step(step: Long): Double = {
    val previous = newest
    val losses = group.run { state =>
      val rank = BlockManagerRank.of(state)
      rank.fetchWeights(previous)
      val loss = state.computeGradient(step, (_, _) => ())
      rank.putGradient(step)
      loss
    }
    group.run(state => BlockManagerRank.of(state).update(step))
    newest = step
    losses.sum
  }

  def synchronize(): Unit = {
    val step = newest
    group.run(state => BlockManagerRank.of(state).fetchWeights(step))
    ()
  }

  def weights(): Array[Float] = group.run(state => BlockManagerRank.of(state).masterWeights).toArray.flatten

  override def close(): Unit = {
    group.run(state => BlockManagerRank.of(state).removeBlocks())
    ()
  }
}
