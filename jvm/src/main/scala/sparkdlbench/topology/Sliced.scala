package sparkdlbench.topology

/**
 * Every rank owns 1/N of each bucket. All ranks send their part of a slice straight to its owner (reduce-scatter in one
 * round); the owner sums in the order of ranks, updates, and sends the finished slice to everyone (all-gather in one
 * round).
 *
 * Messages a rank and bucket: 2(N−1) in 2 rounds. Bytes a rank and step: 2(N−1)/N · S, the least there is for an
 * all-reduce. As in BigDL (Dai et al. 2019, arXiv:1804.05839, section 3.3) and CaffeOnSpark.
 */
final class Sliced extends Topology with Scheduled {
  def name = "sliced"
  def doc = "Each worker owns 1/N of the parameters: direct reduce-scatter, update at the owner, direct all-gather"

  def schedule(size: Int): Schedule = {
    val ranks = 0 until size
    Schedule(
      slices = size,
      ownedSlice = ranks.map(Some(_)),
      // Each rank starts with its right-hand neighbour, so that not everybody sends to rank 0 first.
      reduce =
        Seq(for (from <- ranks; step <- 1 until size; to = (from + step) % size) yield Hop(from, to, to, to + 1)),
      gather =
        Seq(for (from <- ranks; step <- 1 until size; to = (from + step) % size) yield Hop(from, to, from, from + 1))
    )
  }
}
