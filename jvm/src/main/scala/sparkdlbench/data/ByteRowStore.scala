package sparkdlbench.data

import java.nio.{FloatBuffer, LongBuffer}

/**
 * Rows of unsigned bytes and their classes, read as fp32 values byte × scale. One byte a value; immutable once filled.
 *
 * @param blocks
 *   the rows in order, 2^`blockShift` rows a block (the last may be shorter), so that a set may be larger than one
 *   array
 * @param labels
 *   classes as unsigned bytes
 */
final class ByteRowStore(
    val rows: Int,
    val width: Int,
    blocks: Array[Array[Byte]],
    blockShift: Int,
    labels: Array[Byte],
    scale: Double
) extends RowStore {
  private val scaled: Array[Float] = Array.tabulate(256)(value => (value * scale).toFloat)

  def read(id: Int, at: Int, features: FloatBuffer, target: LongBuffer): Unit =
    read(id, at, features, target, new Array[Float](width))

  override def readAll(ids: Array[Int], from: Int, until: Int, features: FloatBuffer, target: LongBuffer): Unit = {
    val row = new Array[Float](width)
    var at = from
    while (at < until) { read(ids(at), at - from, features, target, row); at += 1 }
  }

  private def read(id: Int, at: Int, features: FloatBuffer, target: LongBuffer, row: Array[Float]): Unit = {
    if (id < 0 || id >= rows) throw new IndexOutOfBoundsException(s"row $id of $rows")
    val block = blocks(id >> blockShift)
    val table = scaled
    val start = (id & ((1 << blockShift) - 1)) * width
    var column = 0
    while (column < row.length) {
      row(column) = table(block(start + column) & 0xff)
      column += 1
    }
    // The table and the row stay in the first-level cache; single puts into a direct buffer would be bounds-checked
    // each.
    features.put(at * width, row)
    target.put(at, (labels(id) & 0xff).toLong)
  }
}

object ByteRowStore {
  private val BlockBytes = 1 << 26

  /** Rows a block, as a power of two: as many as fit 64 MiB, at least one. */
  def blockShift(width: Int): Int = 31 - Integer.numberOfLeadingZeros(math.max(1, BlockBytes / math.max(1, width)))

  /** Empty blocks for `rows` rows. */
  def allocate(rows: Int, width: Int): Array[Array[Byte]] = {
    val perBlock = 1 << blockShift(width)
    Array.range(0, ((rows.toLong + perBlock - 1) / perBlock).toInt).map { block =>
      new Array[Byte](math.min(perBlock, rows - block * perBlock) * width)
    }
  }
}
