package sparkdlbench.topology

import sparkdlbench.codec.Codec
import sparkdlbench.config.Key
import sparkdlbench.transport.RankGroups

/**
 * MLlib's way: the gradients are summed up a tree whose root is the driver (`RDD.treeAggregate`), which holds the one optimiser
 * and the weights, and broadcasts the new ones. The tree has the shape of Spark's own: with N leaves and depth d, a level
 * of aggregators has 1/s of the partitions before it, s = max(2, ceil(N^(1/d))), as long as that makes the root's work less; so
 * few workers (fewer than 6 at depth 2) send to the driver directly.
 *
 * Sums are made in the order of the children's numbers, unlike in Spark's own, whose order is that of arrival.
 *
 * Bytes: every rank S up, every aggregator S up, the driver S to each executor (broadcast). Meng et al., "MLlib: Machine
 * Learning in Apache Spark", JMLR 17 (2016), section 3; Agarwal et al., "A Reliable Effective Terascale Linear Learning
 * System", JMLR 15 (2014).
 */
final class Tree extends Topology with JobTopology {
  def name = "tree"
  def doc = "MLlib's way: gradients summed up a tree to the driver, which updates and broadcasts; a job per step"
  override def keys: Seq[Key[_]] = Seq(Tree.depth)

  /** What a rank sends; the aggregators and the driver send beside. */
  def bytesPerStep(
      rank: Int,
      groups: RankGroups,
      length: Int,
      bucketLength: Int,
      gradientCodec: Codec,
      parameterCodec: Codec
  ): StepBytes = StepBytes(0, gradientCodec.fixedBytes(length))
}

object Tree {
  val depth: Key[Int] =
    Key.int("tree.depth", "2", 1, "Levels of the tree below the driver, at most; as in RDD.treeAggregate")

  /** Number of aggregators on each level between the `size` ranks and the driver, from the ranks upwards; may be none. */
  def levels(size: Int, depth: Int): List[Int] = {
    val scale = math.max(math.ceil(math.pow(size, 1.0 / depth)).toInt, 2)
    def below(count: Int): List[Int] =
      if (count > scale + math.ceil(count.toDouble / scale)) {
        val next = count / scale
        next :: below(next)
      } else Nil
    below(size)
  }

  /** The one among `parents` that child `child` sends to. */
  def parent(child: Int, parents: Int): Int = child % parents

  /** The children, of `children`, that send to `parent` of `parents`, in the order of summation. */
  def children(parent: Int, parents: Int, children: Int): IndexedSeq[Int] = parent until children by parents
}
