package sparkdlbench.data

/**
 * Rows for a training loop of the user's own: decoded once, then read by each rank where they are, in the order of a sharded set.
 *
 * @param rows
 *   all of them; none is left out to test on
 * @param shape
 *   of one row
 * @param classes
 *   1 where the labels are numbers
 * @param identity
 *   the same for the same rows in the same order
 */
final case class RowFeed(rows: RowStore, shape: Seq[Int], classes: Int, identity: String)
