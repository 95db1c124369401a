package sparkdlbench.engine.libtorch

import scala.collection.mutable

/** What the plan needs to know of a layer. */
private[libtorch] final case class PlannedLayer(
    inputs: Seq[Int],
    hasParameters: Boolean,
    worksInPlace: Boolean,
    backwardReadsOutput: Boolean,
    keepsValues: Boolean,
    passesGradient: Boolean
)

/**
 * Where the values between layers and their gradients lie. Value 0 is the model's input, value i + 1 what layer i gives.
 *
 * Values that a layer overwrites in place share memory with what it makes of them. Every other value keeps its memory until the backward
 * pass has read it; a gradient only lives from the first layer that writes it to the layer that reads it, so gradients take turns
 * in a few arenas. The gradients of a sum's inputs, which are its own, share its arena where no write would change what is still to be
 * read.
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

  /** Memories whose gradients lie in an arena and are still to be read. */
  private val living = mutable.Map.empty[Int, Set[Int]].withDefaultValue(Set.empty)

  /** Where layer i writes the gradient of its k-th input; None where nobody needs it. */
  val targets: IndexedSeq[IndexedSeq[Option[Target]]] = {
    val found = new Array[IndexedSeq[Option[Target]]](layers.size)
    // The last value's gradient has memory of its own: the loss writes it.
    val written = mutable.Set(memory.last)
    for (layer <- layers.indices.reverse) {
      val scratch = mutable.ArrayBuffer.empty[Int]
      val fresh = layers(layer).inputs.map(memory).toSet -- written
      found(layer) =
        if (!needsGradient(layer + 1)) layers(layer).inputs.map(_ => None).toIndexedSeq
        else
          layers(layer).inputs.toIndexedSeq.map { value =>
            if (!needsGradient(value)) None
            else if (inPlace(layer)) Some(Direct)
            else if (written.add(memory(value))) {
              val shared = sharedArena(layer, memory(value), fresh)
              lies(memory(value), shared.getOrElse(take(widths(value))))
              Some(if (shared.isDefined) Shared else Direct)
            } else {
              val arena = take(widths(value))
              scratch += arena
              Some(Added(arena))
            }
          }
      free ++= scratch
      if (!inPlace(layer)) arenaOfMemory.get(memory(layer + 1)).foreach { arena =>
        living(arena) -= memory(layer + 1)
        if (living(arena).isEmpty) free += arena
      }
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

  private def lies(memory: Int, arena: Int): Unit = {
    arenaOfMemory(memory) = arena
    living(arena) += memory
  }

  /**
   * The arena of the layer's output gradient, where the gradient of an input in `mine` may lie there too.
   *
   * @param fresh
   *   memories whose gradients this layer is the first to write
   */
  private def sharedArena(layer: Int, mine: Int, fresh: Set[Int]): Option[Int] =
    arenaOfMemory.get(memory(layer + 1)).filter { arena =>
      layers(layer).passesGradient && (living(arena) - memory(layer + 1)).forall { other =>
        nextWrite(mine, layer, fresh).forall(_ <= lastRead(other)) &&
        nextWrite(other, layer, fresh).forall(_ <= lastRead(mine))
      }
    }

  /** The last layer of the backward pass that reads the gradient of what lies in this memory. */
  private def lastRead(ofMemory: Int): Int = memory.indexOf(ofMemory) - 1

  /**
   * The next layer of the backward pass, from `layer` on, that changes the gradient: by writing in place, or by adding to it once it has
   * read all it reads.
   */
  private def nextWrite(ofMemory: Int, layer: Int, fresh: Set[Int]): Option[Int] = {
    val isAddedTo = layers(layer).inputs.count(memory(_) == ofMemory) > (if (fresh(ofMemory)) 1 else 0)
    val later = memory.indices.filter(memory(_) == ofMemory).flatMap(consumers).filter(_ < layer)
    if (isAddedTo) Some(layer) else if (later.isEmpty) None else Some(later.max)
  }

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

  /** Nowhere: the gradient is the output's, and lies where that lies. */
  case object Shared extends Target

  /** To where that gradient lies. */
  case object Direct extends Target

  /** To an arena, from which it is then added to what other layers have written. */
  final case class Added(arena: Int) extends Target
}
