package sparkdlbench.topology

/**
 * Ranks form a ring and talk to their neighbours alone. A slice's partial sum starts at the rank after its owner, goes
 * once around and ends at the owner; the finished slices go around in the same way.
 *
 * Messages a rank and bucket: 2(N−1) in 2(N−1) rounds. Bytes a rank and step: 2(N−1)/N · S. Patarasuk & Yuan,
 * "Bandwidth optimal all-reduce algorithms for clusters of workstations", J. Parallel Distrib. Comput. 69 (2009).
 */
final class Ring extends Topology with Scheduled {
  def name = "ring"
  def doc = "Partial sums and finished slices travel from neighbour to neighbour; 2(N-1) rounds"

  def schedule(size: Int): Schedule = {
    val ranks = 0 until size
    def hop(from: Int, slice: Int): Hop = {
      val wrapped = Math.floorMod(slice, size)
      Hop(from, (from + 1) % size, wrapped, wrapped + 1)
    }
    Schedule(
      slices = size,
      ownedSlice = ranks.map(Some(_)),
      // In round k rank r passes on slice r − 1 − k, so that the sum of slice s is complete at rank s after N − 1
      // rounds.
      reduce = for (round <- 0 until size - 1) yield ranks.map(rank => hop(rank, rank - 1 - round)),
      gather = for (round <- 0 until size - 1) yield ranks.map(rank => hop(rank, rank - round))
    )
  }
}
