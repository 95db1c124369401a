package sparkdlbench.collective

import sparkdlbench.topology.{Collective => Bound}
import sparkdlbench.vector.FlatBuffer

import scala.collection.mutable

/**
 * All-reduces of one vector, again and again: what each needs was made once, and results arrive in the vector itself. Bytes and order of
 * summation are those of the topology. Made by `Collective.bind`; every rank calls it as often, in the same order as the group's other
 * operations.
 */
final class VectorAllReduce private[collective] (first: Bound, vector: FlatBuffer, size: Int) {
  import VectorAllReduce._
  private var sequence = 0L
  private val places = mutable.HashMap(OwnPlace -> (first -> vector))
  private var current = OwnPlace

  /**
   * From now on all-reduces may be done in this memory too, where the values lie already. Concerns this rank alone: the others may reduce
   * theirs elsewhere.
   *
   * @param place
   *   its number, another than 0
   * @return
   *   false where the topology or the transport is bound to the memory that it has
   */
  def add(place: Int, values: FlatBuffer): Boolean = {
    require(place != OwnPlace && !places.contains(place), s"place $place is taken")
    // Tried at once: nothing is under way.
    val taken = first.over(values).filter(_.use())
    taken.foreach { bound => places(place) = bound -> values; current = place }
    taken.isDefined
  }

  /** Lets go of memory that was added. */
  def remove(place: Int): Unit = {
    require(place != OwnPlace, "the vector's own place stays")
    if (current == place) use(OwnPlace)
    places.remove(place): Unit
  }

  private def use(place: Int): Unit = {
    require(places.contains(place), s"there is no place $place")
    require(places(place)._1.use(), s"the transport does not go on to place $place")
    current = place
  }

  /**
   * The vector becomes the reduction of all ranks' vectors. From its end on other ranks' results may arrive there as soon as this rank calls
   * it again, not before.
   *
   * @param reduction
   *   one of `VectorAllReduce.reductions`
   * @param place
   *   which of this rank's memory has the values: 0 for that which the vector was bound with
   */
  def run(reduction: Reduction, place: Int = VectorAllReduce.OwnPlace): Unit = {
    require(reductions.contains(reduction), s"${reduction.name} of a bound vector")
    if (place != current) use(place)
    val (bound, values) = places(place)
    bound.step(sequence) { bucket =>
      if (reduction == Reduction.Average) {
        val (from, until) = bound.owned(bucket)
        ElementType.Float32.divide(values.byteSlice(from, until), size)
      }
    }
    sequence += 1
  }
}

object VectorAllReduce {

  /** The memory that a vector was bound with. */
  val OwnPlace = 0
  val reductions: Set[Reduction] = Set(Reduction.Sum, Reduction.Average)
}
