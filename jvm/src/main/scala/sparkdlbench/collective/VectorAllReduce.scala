package sparkdlbench.collective

import sparkdlbench.topology.{Collective => Bound}
import sparkdlbench.vector.FlatBuffer

/**
 * All-reduces of one vector, again and again: what each needs was made once, and results arrive in the vector itself. Bytes and order of
 * summation are those of the topology. Made by `Collective.bind`; every rank calls it as often, in the same order as the group's other
 * operations.
 */
final class VectorAllReduce private[collective] (bound: Bound, values: FlatBuffer, size: Int) {
  private var sequence = 0L

  /**
   * The vector becomes the reduction of all ranks' vectors. From its end on other ranks' results may arrive there as soon as this rank calls
   * it again, not before.
   *
   * @param reduction
   *   one of `VectorAllReduce.reductions`
   */
  def run(reduction: Reduction): Unit = {
    require(VectorAllReduce.reductions.contains(reduction), s"${reduction.name} of a bound vector")
    val buckets = 0 until bound.buckets
    buckets.foreach(bound.contribute(_, sequence))
    buckets.foreach { bucket =>
      bound.reduce(bucket, sequence)
      if (reduction == Reduction.Average) {
        val (from, until) = bound.owned(bucket)
        ElementType.Float32.divide(values.byteSlice(from, until), size)
      }
      bound.publish(bucket, sequence)
    }
    buckets.foreach(bound.collect(_, sequence))
    bound.flush()
    sequence += 1
  }
}

object VectorAllReduce {
  val reductions: Set[Reduction] = Set(Reduction.Sum, Reduction.Average)
}
