package sparkdlbench.common

/** Something that takes memory. @param bytes in one worker, one executor, or the driver */
final case class MemoryPart(name: String, kind: MemoryKind, bytes: Long)

/** Which limit memory counts against. */
sealed abstract class MemoryKind(val name: String)
object MemoryKind {

  /** `spark.executor.memory`. */
  case object Heap extends MemoryKind("heap")

  /** Heap that is needed at a moment and not together with others of this kind. */
  case object HeapAtTimes extends MemoryKind("heap_at_times")

  /** `-XX:MaxDirectMemorySize`. */
  case object Direct extends MemoryKind("direct")

  /** Known to the operating system alone. */
  case object Native extends MemoryKind("native")

  /** Files in a memory file system, where executors of one host exchange through them; otherwise direct memory serves. */
  case object Mapped extends MemoryKind("mapped")
}
