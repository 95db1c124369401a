package sparkdlbench.data

import java.nio.{FloatBuffer, LongBuffer}

/**
 * Rows as they were decoded, one byte or one fp32 a value, read as value × scale. Immutable once filled.
 *
 * @param labels
 *   the rows' classes; of a regression `loss.Target.bits`
 */
final class HeldRowStore(blocks: RowBlocks, kind: ValueKind, labels: Array[Int], scale: Double) extends RowStore {
  require(labels.length == blocks.rows, s"${labels.length} labels for ${blocks.rows} rows")
  val rows: Int = blocks.rows
  val width: Int = blocks.rowBytes / kind.bytes
  private val scaled: Array[Float] = Array.tabulate(256)(value => (value * scale).toFloat)
  private val factor = scale.toFloat

  def label(id: Int): Long = labels(id).toLong

  def read(id: Int, at: Int, features: FloatBuffer, target: LongBuffer): Unit =
    read(id, at, features, target, new Array[Byte](blocks.rowBytes), new Array[Float](width))

  override def readAll(ids: Array[Int], from: Int, until: Int, features: FloatBuffer, target: LongBuffer): Unit = {
    // They stay in the first-level cache; single puts into a direct buffer would be bounds-checked each.
    val raw = new Array[Byte](blocks.rowBytes)
    val row = new Array[Float](width)
    var at = from
    while (at < until) { read(ids(at), at - from, features, target, raw, row); at += 1 }
  }

  private def read(
      id: Int,
      at: Int,
      features: FloatBuffer,
      target: LongBuffer,
      raw: Array[Byte],
      row: Array[Float]
  ): Unit = {
    if (kind == ValueKind.UInt8) {
      blocks.read(id, raw)
      fromBytes(raw, row)
    } else {
      blocks.readFloats(id, row, raw)
      if (factor != 1f) scaleAll(row)
    }
    features.put(at * width, row)
    target.put(at, labels(id).toLong)
  }

  private def fromBytes(raw: Array[Byte], row: Array[Float]): Unit = {
    val table = scaled
    var column = 0
    while (column < row.length) {
      row(column) = table(raw(column) & 0xff)
      column += 1
    }
  }

  private def scaleAll(row: Array[Float]): Unit = {
    var column = 0
    while (column < row.length) { row(column) *= factor; column += 1 }
  }
}
