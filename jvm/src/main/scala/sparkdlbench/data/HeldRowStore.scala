package sparkdlbench.data

import sparkdlbench.loss.Target

import java.nio.{FloatBuffer, LongBuffer}

/**
 * Rows as they were decoded, one byte or one fp32 a value, read as value × scale.
 *
 * @param classes
 *   the rows' classes; where labels are numbers `loss.Target.bits`, `labels` of each row
 * @param weights
 *   `loss.Target.weightBits`; None: all rows count alike
 */
final class HeldRowStore(
    blocks: RowBlocks,
    kind: ValueKind,
    classes: Array[Int],
    scale: Double,
    weights: Option[Array[Int]] = None,
    override val labels: Int = 1
) extends RowStore {
  require(classes.length == blocks.rows * labels, s"${classes.length} labels for ${blocks.rows} rows")
  val rows: Int = blocks.rows
  val width: Int = blocks.rowBytes / kind.bytes
  private val scaled: Array[Float] = Array.tabulate(256)(value => (value * scale).toFloat)
  private val factor = scale.toFloat

  private val weightBits = weights.orNull

  def label(id: Int): Long =
    if (weightBits == null) classes(id * labels).toLong else Target.weightedBy(classes(id * labels), weightBits(id))

  override def label(id: Int, at: Int): Long = if (at == 0) label(id) else classes(id * labels + at).toLong

  def read(id: Int, at: Int, features: FloatBuffer, target: LongBuffer): Unit =
    read(id, at, features, target, rowCopy)

  override def readAll(ids: Array[Int], from: Int, until: Int, features: FloatBuffer, target: LongBuffer): Unit = {
    val copy = rowCopy
    var at = from
    while (at < until) { read(ids(at), at - from, features, target, copy); at += 1 }
  }

  /** For a thread that reads row after row. */
  private[data] def rowCopy: RowCopy = new RowCopy(new Array[Byte](blocks.rowBytes), new Array[Float](width))

  private[data] def read(id: Int, at: Int, features: FloatBuffer, target: LongBuffer, copy: RowCopy): Unit = {
    val (raw, row) = (copy.raw, copy.row)
    if (kind == ValueKind.UInt8) {
      blocks.read(id, raw)
      fromBytes(raw, row)
    } else {
      blocks.readFloats(id, row, raw)
      if (factor != 1f) scaleAll(row)
    }
    features.put(at * width, row)
    target.put(at * labels, label(id))
    var other = 1
    while (other < labels) { target.put(at * labels + other, classes(id * labels + other).toLong); other += 1 }
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

/** One row as it is stored and as it is given: it stays in the first-level cache, and single puts into a direct buffer would be bounds-checked each. */
private[data] final class RowCopy(val raw: Array[Byte], val row: Array[Float])
