package sparkdlbench.engine.libtorch

import scala.collection.mutable

/** What the plan needs to know of a layer. */
private[libtorch] final case class PlannedLayer(
    inputs: Seq[Int],
    hasParameters: Boolean,
    worksInPlace: Boolean,
    backwardReadsOutput: Boolean,
    keepsValues: Boolean
)

/**
 * Where the values between layers and their gradients lie. Value 0 is the model's input, value i + 1 what layer i gives.
 *
 * Values that a layer overwrites in place share memory with what it makes of them. Every other value keeps its memory until the backward
 * pass has read it; a gradient only lives from the first layer that writes it to the layer that reads it, so gradients take turns
 * in a few arenas.
 *
 * @param widths
 *   numbers of fp32 values of one row of each value
 */
private[libtorch] final class MemoryPlan(layers: IndexedSeq[PlannedLayer], widths: IndexedSeq[Long]) {
  import MemoryPlan._

  private val consumers: IndexedSeq[Seq[Int]] =
    widths.indices.map(value => layers.indices.filter(layers(_).inputs.contains(value)))

  /** True where layer i overwrites its input. */
  val inPlace: IndexedSeq[Boolean] = layers.map { layer =>
    val value = layer.inputs.head
    layer.worksInPlace && value > 0 && consumers(value).size == 1 && (layer.keepsValues || !isRead(value))
  }

  /** Whether the backward pass reads the value: that of a layer which keeps values may lie where its input lies. */
  private def isRead(value: Int): Boolean = value > 0 && {
    val maker = layers(value - 1)
    maker.backwardReadsOutput || (maker.keepsValues && isRead(maker.inputs.head))
  }

  /** Memory of each value, numbered by the last value that lies in it. */
  val memory: IndexedSeq[Int] = {
    val found = widths.indices.toArray
    for (layer <- layers.indices.reverse if inPlace(layer)) found(layers(layer).inputs.head) = found(layer + 1)
    found.toVector
  }

  /** Below the first layers that have parameters nobody needs a gradient. */
  val needsGradient: IndexedSeq[Boolean] = layers.indices.foldLeft(Vector(false)) { (known, layer) =>
    known :+ (layers(layer).hasParameters || layers(layer).inputs.exists(known))
  }

  private val arenaWidths = mutable.ArrayBuffer.empty[Long]
  private val free = mutable.Set.empty[Int]
  private val arenaOfMemory = mutable.Map.empty[Int, Int]

  /** Where layer i writes the gradient of its k-th input; None where nobody needs it. */
  val targets: IndexedSeq[IndexedSeq[Option[Target]]] = {
    val found = new Array[IndexedSeq[Option[Target]]](layers.size)
    // The last value's gradient has memory of its own: the loss writes it.
    val written = mutable.Set(memory.last)
    for (layer <- layers.indices.reverse) {
      val scratch = mutable.ArrayBuffer.empty[Int]
      found(layer) =
        if (!needsGradient(layer + 1)) layers(layer).inputs.map(_ => None).toIndexedSeq
        else
          layers(layer).inputs.toIndexedSeq.map { value =>
            if (!needsGradient(value)) None
            else if (inPlace(layer) || written.add(memory(value))) {
              if (!inPlace(layer)) arenaOfMemory(memory(value)) = take(widths(value))
              Some(Direct)
            } else {
              val arena = take(widths(value))
              scratch += arena
              Some(Added(arena))
            }
          }
      free ++= scratch
      if (!inPlace(layer)) arenaOfMemory.get(memory(layer + 1)).foreach(free += _)
    }
    found.toVector
  }

  /** fp32 values a row of each arena. */
  val arenas: IndexedSeq[Long] = arenaWidths.toVector

  /** The arena of a value's gradient; None for the model's result, and for values that need none. */
  def gradientArena(value: Int): Option[Int] = arenaOfMemory.get(memory(value))

  /** fp32 values of one row in all memories but the last, and in all arenas. */
  def rowValues: Long =
    memory.distinct.filter(value => value > 0 && value != memory.last).map(widths).sum + arenas.sum

  /** The free arena that fits best, the largest one made larger, or a new one. */
  private def take(width: Long): Int = {
    val fitting = free.filter(arenaWidths(_) >= width)
    val arena =
      if (fitting.nonEmpty) fitting.minBy(each => (arenaWidths(each), each))
      else if (free.nonEmpty) free.maxBy(each => (arenaWidths(each), -each))
      else { arenaWidths += 0L; arenaWidths.size - 1 }
    arenaWidths(arena) = math.max(arenaWidths(arena), width)
    free -= arena
    arena
  }
}

private[libtorch] object MemoryPlan {

  /** Where a layer writes a gradient. */
  sealed trait Target

  /** To where that gradient lies. */
  case object Direct extends Target

  /** To an arena, from which it is then added to what other layers have written. */
  final case class Added(arena: Int) extends Target
}
