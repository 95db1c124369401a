package sparkdlbench.engine.libtorch

import org.bytedeco.javacpp.{FloatPointer, Pointer, PointerScope}
import org.bytedeco.pytorch.global.torch
import org.bytedeco.pytorch.{InferenceMode, MemoryFormatOptional, Storage, Tensor, TensorOptions}
import sparkdlbench.vector.FlatBuffer

import java.nio.FloatBuffer
import scala.collection.mutable

/** Tensors over memory that somebody else owns, and libtorch's inference mode. */
private[libtorch] object Tensors {

  /** Values `from` until `from` + product(shape) of a flat buffer; the buffer must outlive the tensor. */
  def over(buffer: FlatBuffer, from: Int, shape: Seq[Int]): Tensor =
    over(buffer.floatSlice(from, from + shape.product), shape)

  /** A direct buffer's values from index 0 on, row-major; the buffer must outlive the tensor. */
  def over(buffer: FloatBuffer, shape: Seq[Int]): Tensor = {
    val options = new TensorOptions(torch.ScalarType.Float)
    try torch.from_blob(new FloatPointer(buffer), sizes(shape), options)
    finally options.close()
  }

  /** Address of a direct buffer's index 0. */
  def address(buffer: FloatBuffer): Long = new FloatPointer(buffer).address

  def sizes(shape: Seq[Int]): Array[Long] = shape.map(_.toLong).toArray

  /** 64-bit whole numbers, not written yet. */
  def emptyLongs(sizes: Long*): Tensor = {
    val options = new TensorOptions(torch.ScalarType.Long)
    val usualFormat = new MemoryFormatOptional
    try torch.empty(sizes.toArray, options, usualFormat)
    finally { options.close(); usualFormat.close() }
  }

  /** The first `rows` rows of memory for rows of `shape`, same memory. */
  def rows(memory: Tensor, rows: Int, shape: Seq[Int]): Tensor = {
    val first = memory.narrow(0L, 0L, rows.toLong)
    try first.view(sizes(rows +: shape): _*)
    finally first.close()
  }

  /** True where both tensors start at the same place. */
  def sameMemory(one: Tensor, other: Tensor): Boolean = one.data_ptr().address() == other.data_ptr().address()

  /**
   * Gives `to` the values of `result`, which nobody reads afterwards. Where both fill storages of one size that libtorch allocated, these
   * exchange their memory, which every other view of `to`'s storage follows; else the values are copied.
   */
  def moved(result: Tensor, to: Tensor): Unit = {
    val (from, into) = (result.storage(), to.storage())
    if (
      result.scalar_type().value == to.scalar_type().value && from.nbytes() == into.nbytes() && from.unique() &&
      isFilled(from, result) && isFilled(into, to)
    ) from.set_data_ptr_noswap(into.set_data_ptr(from.mutable_data_ptr()))
    else { to.copy_(result); () }
  }

  /** Whether the tensor is all of a storage whose memory may be another: libtorch says of what was given to it that it cannot be resized. */
  private def isFilled(storage: Storage, tensor: Tensor): Boolean =
    storage.resizable() && tensor.is_contiguous() && tensor.storage_offset() == 0 && tensor.nbytes() == storage.nbytes()

  /** Frees what libtorch returns in `body` at its end; nothing that `body` makes may be kept. */
  def scoped[T](body: => T): T = {
    val scope = new PointerScope()
    try body
    finally scope.close()
  }

  /** Runs `body` without libtorch's autograd bookkeeping; the mode belongs to the calling thread. */
  def inference[T](body: => T): T = {
    val mode = new InferenceMode(true)
    try body
    finally mode.close()
  }
}

/**
 * Passes of up to `maxRows` rows cut into chunks of at most `mostValues` values, or one row where that alone has more.
 *
 * @param valuesOfRow
 *   values of one row
 */
private[libtorch] final class RowChunks(maxRows: Int, valuesOfRow: Long, mostValues: Long) {

  /** Rows of the largest chunk. */
  val most: Long = math.max(1L, math.min(maxRows.toLong, mostValues / valuesOfRow))

  /** What `make` makes of each chunk's first row and number of rows. */
  def of[T](rows: Long)(make: (Long, Long) => T): IndexedSeq[T] =
    (0L until rows by most).map(from => make(from, math.min(most, rows - from)))
}

/** Native objects that are closed together. */
private[libtorch] final class Kept extends AutoCloseable {
  private val held = mutable.ArrayBuffer.empty[Pointer]
  def apply[T <: Pointer](made: T): T = { held += made; made }
  def close(): Unit = { held.reverseIterator.foreach(_.close()); held.clear() }
}
