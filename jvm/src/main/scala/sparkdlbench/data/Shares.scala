package sparkdlbench.data

import sparkdlbench.vector.Slices

import scala.collection.mutable

/** How the rows of a step are dealt out to the ranks: consecutive parts in the order of the ranks, which cover all of them. */
sealed trait Shares {

  /** The part [from, until) of a step of `rows` rows that rank `rank` computes. */
  def of(rows: Int, rank: Int): (Int, Int)
}

object Shares {

  /** Parts that differ by at most one row. */
  def even(ranks: Int): Shares = new Even(ranks)

  /**
   * Whole numbers of rows by which the slowest rank is done as early as can be: each next row goes to the rank that would be done with
   * it first.
   *
   * @param speeds
   *   rows a second of each rank, above 0
   * @param batch
   *   rows of a whole step, at least one a rank; steps of fewer are cut in the same proportion
   * @param most
   *   rows that any rank may get; all ranks together must be able to take the batch
   */
  def bySpeed(speeds: IndexedSeq[Double], batch: Int, most: Int): Shares = {
    require(
      speeds.forall(_ > 0) && batch >= speeds.size && most.toLong * speeds.size >= batch,
      s"$speeds, $batch, $most"
    )
    val rows = Array.fill(speeds.size)(1)
    val earliest = Ordering.by[Int, (Double, Int)](rank => ((rows(rank) + 1) / speeds(rank), rank)).reverse
    val queue = mutable.PriorityQueue(speeds.indices.filter(_ => most > 1): _*)(earliest)
    for (_ <- speeds.size until batch) {
      val rank = queue.dequeue()
      rows(rank) += 1
      if (rows(rank) < most) queue.enqueue(rank)
    }
    new Cut(rows.toIndexedSeq)
  }

  private final class Even(ranks: Int) extends Shares {
    def of(rows: Int, rank: Int): (Int, Int) = {
      val slices = Slices(rows, ranks)
      (slices.from(rank), slices.until(rank))
    }
  }

  private final class Cut(rowsOf: IndexedSeq[Int]) extends Shares {
    private val starts = rowsOf.scanLeft(0L)(_ + _)
    def of(rows: Int, rank: Int): (Int, Int) = (at(rank, rows), at(rank + 1, rows))
    private def at(rank: Int, rows: Int): Int = (starts(rank) * rows / starts.last).toInt
  }
}
