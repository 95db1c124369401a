package sparkdlbench.vector

/** Where a rank's vectors best lie: what a transport needs so that other ranks reach them without a copy. */
trait VectorMemory {

  /** All zeros. */
  def vector(length: Int): FlatBuffer
}

object VectorMemory {

  /** Direct memory, which this process alone reaches. */
  val Own: VectorMemory = length => new FlatBuffer(length)
}
