package sparkdlbench.job

import sparkdlbench.algorithm.Residuals
import sparkdlbench.codec.SentVector
import sparkdlbench.rank.{JobRank, Snapshot, StateRange}
import sparkdlbench.topology.EncodedRange

/** What a rank's codec left out of its gradients, on its way through a checkpoint, where every rank encodes all values. */
private[job] object JobResiduals {
  def of(rank: JobRank, gradients: SentVector): Option[StateRange] =
    gradients.leftOut.map(left => StateRange(Residuals.name(rank.rank), 0, left.toArray))

  /** @param size number of ranks that go on */
  def restore(rank: JobRank, snapshot: Snapshot, size: Int, gradients: SentVector): Unit =
    gradients.leftOut.foreach { left =>
      val all = Seq(EncodedRange(0, left.length, 0 until size))
      left.floats.put(0, Residuals.restored(snapshot, rank.rank, size, left.length, all))
    }
}
