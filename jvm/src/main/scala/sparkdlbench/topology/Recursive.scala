package sparkdlbench.topology

/**
 * Recursive halving, then recursive doubling: p = the largest power of two ≤ N ranks halve what they exchange in log2 p
 * rounds (the partner's distance p/2, p/4, …, 1), and double it again on the way back. The N − p extra ranks send all
 * their values to a partner first, get the finished bucket from it last, and own nothing.
 *
 * Messages a rank and bucket: 2 log2 p (extra: 1; their partners: 1 more). Bytes a rank and step: 2(p−1)/p · S; extra
 * ranks S, their partners S more. Rabenseifner, "Optimization of collective reduction operations", ICCS 2004; Thakur,
 * Rabenseifner & Gropp, "Optimization of collective communication operations in MPICH", IJHPCA 19 (2005), section 4.5.
 */
final class Recursive extends Topology with Scheduled {
  def name = "recursive"
  def doc = "Recursive halving-doubling: 2 log2 N rounds between pairs; best with a power of two of workers"

  def schedule(size: Int): Schedule = {
    val core = Integer.highestOneBit(size)
    val extras = core until size
    val distances = Iterator.iterate(core / 2)(_ / 2).takeWhile(_ > 0).toList

    // The slices that `rank` holds together with the ranks nearer than `distance`; it has `distance` of them.
    def block(rank: Int, distance: Int): Int = rank / distance * distance
    val halving = for (distance <- distances) yield (0 until core).map { rank =>
      val partner = rank ^ distance
      Hop(rank, partner, block(partner, distance), block(partner, distance) + distance)
    }
    val doubling = for (distance <- distances.reverse) yield (0 until core).map { rank =>
      Hop(rank, rank ^ distance, block(rank, distance), block(rank, distance) + distance)
    }
    Schedule(
      slices = core,
      ownedSlice = (0 until size).map(rank => if (rank < core) Some(rank) else None),
      reduce = (extras.map(rank => Hop(rank, rank - core, 0, core)) +: halving).filter(_.nonEmpty),
      gather = (doubling :+ extras.map(rank => Hop(rank - core, rank, 0, core))).filter(_.nonEmpty)
    )
  }
}
