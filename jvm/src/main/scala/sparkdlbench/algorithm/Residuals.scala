package sparkdlbench.algorithm

import sparkdlbench.rank.Snapshot
import sparkdlbench.topology.EncodedRange

/** What ranks' messages have left out, on its way through a checkpoint. */
private[sparkdlbench] object Residuals {
  def name(rank: Int): String = s"residual.$rank"

  /**
   * What rank `rank` of `size` goes on with: its own, where as many ranks go on. What was left out by ranks that now do not
   * send those values themselves (another number of ranks, or other groups) goes to the first rank that does, so that over
   * all ranks nothing is lost.
   *
   * @param encoded
   *   what this rank sends encoded now
   */
  def restored(snapshot: Snapshot, rank: Int, size: Int, length: Int, encoded: Seq[EncodedRange]): Array[Float] = {
    val asMany = snapshot.parts.size == size
    val whole = new Array[Float](length)
    // One old rank after the other: their vectors are as long as the model's.
    for (part <- snapshot.parts.indices; values <- snapshot.vector(name(part), length); range <- encoded) {
      val takes = if (asMany && range.ranks.contains(part)) part == rank else rank == range.ranks.head
      if (takes) {
        var i = range.from
        while (i < range.until) { whole(i) += values(i); i += 1 }
      }
    }
    whole
  }
}
