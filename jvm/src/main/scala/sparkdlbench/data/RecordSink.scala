package sparkdlbench.data

import sparkdlbench.loss.Target

import java.nio.{ByteBuffer, ByteOrder}
import scala.collection.mutable.ArrayBuffer

/**
 * What the records of a set have in common.
 *
 * @param shape
 *   shape of one row as it is stored
 * @param classes
 *   how many; RecordLayout.Regression: labels are numbers; where labels are answers how many of them a row has
 * @param labelNames
 *   the labels of class 0, 1, …, where they are words or other numbers; empty where labels are the classes' numbers
 * @param columns
 *   the names of a table's columns, where it has names
 * @param column
 *   the name of the one column that holds a row's values as a list, in place of `columns`
 * @param fileColumns
 *   columns of a line of text, also of those that are not read; while such files are decoded
 * @param weighted
 *   whether each row has a weight
 * @param binary
 *   whether labels that are numbers are answers: 0 for no, 1 for yes, or between
 * @param ignored
 *   `loss.ignore_label` where that is none of the classes: a label, too
 */
private[data] final case class RecordLayout(
    shape: Seq[Int],
    kind: ValueKind,
    classes: Int,
    description: String,
    labelNames: Seq[String] = Nil,
    columns: Seq[String] = Nil,
    column: String = "",
    fileColumns: Int = 0,
    weighted: Boolean = false,
    ignored: Option[Int] = None,
    binary: Boolean = false
) extends Serializable {
  val width: Int = shape.product
  def rowBytes: Int = width * kind.bytes

  /** Of a row's weight. */
  def weightBytes: Int = if (weighted) 4 else 0

  /** Of a row's labels, and of its weight behind them. */
  def labelBytes: Int = 4 * labels + weightBytes

  /** Whether labels are numbers; each then stands as `Target.bits` where a class's number stands otherwise. */
  def hasNumbers: Boolean = binary || classes == RecordLayout.Regression

  /** How many labels a row has. */
  def labels: Int = if (binary) classes else 1

  private def number(text: String): Option[Float] = {
    val found = Numbers.double(text).map(_.toFloat)
    if (labelNames.isEmpty || labels > 1) found
    else named(text).map(_.toFloat).orElse(found.filter(number => ignored.exists(_.toFloat == number)))
  }

  private def named(text: String): Option[Int] =
    byName.get(text.trim).orElse(Numbers.double(text).flatMap(byValue.get))

  /** Whether rows may have this label, a number. */
  def takes(label: Float): Boolean = !label.isNaN && !label.isInfinite &&
    (!binary || (label >= 0 && label <= 1) || ignored.exists(_.toFloat == label))

  /** Whether rows may have this label, a class's number. */
  def takes(label: Int): Boolean = (label >= 0 && label < classes) || ignored.contains(label)

  @transient private lazy val byName: Map[String, Int] = labelNames.zipWithIndex.reverse.toMap

  /** Those of the names that are numbers. */
  @transient private lazy val byValue: Map[Double, Int] = labelNames.zipWithIndex.reverse.flatMap {
    case (name, label) => Numbers.double(name).map(_ -> label)
  }.toMap

  /** The class that a label's text stands for; None where it is not one. A name that is a number stands for its value: -1 for -1.0 too. */
  def label(text: String): Option[Int] =
    if (hasNumbers) number(text).filter(takes(_)).map(Target.bits)
    else if (labelNames.nonEmpty) named(text).orElse(Numbers.whole(text).filter(ignored.contains))
    else Numbers.whole(text).filter(takes(_))

  def labelsSay: String =
    if (binary) s"with this loss (`loss.name`) labels are 0 for no, 1 for yes, or numbers between$orIgnored"
    else if (hasNumbers) "labels of a regression (`loss.name`) are finite numbers"
    else if (labelNames.nonEmpty) s"`data.label_names` are ${labelNames.take(10).mkString(", ")}$orIgnored"
    else s"with `data.classes` = $classes labels are 0 to ${classes - 1}$orIgnored"

  private def orIgnored: String = ignored.fold("")(label => s", and $label (`loss.ignore_label`)")

  /** The same with what to do where this label, which is none, is a number with a fraction. */
  def labelsSay(text: String): String = labelsSay +
    (if (!hasNumbers && labelNames.isEmpty && Numbers.double(text).exists(number => number != math.rint(number)))
       s"; a label with a fraction is for regression: ${RecordLayout.Remedy}"
     else "")
}

private[data] object RecordLayout {

  /** In place of the number of classes: a regression has one output. */
  val Regression = 1

  /** How cross-entropy becomes one. */
  val Remedy = "set loss.name=mean-squared, absolute or huber"
}

/** A record that is no row of the set, where such a record ends the run. The message is the run's. */
private[data] final class BadRecordException(message: String) extends RuntimeException(message)

/**
 * Takes the records of one part of a set as a source decodes them: checks them, leaves bad ones out or ends the run, and hands
 * the good ones on. One thread.
 *
 * @param skip
 *   whether bad records are left out
 * @param limit
 *   most of them
 */
private[data] abstract class RecordSink(val layout: RecordLayout, skip: Boolean, limit: Int) {
  private val listed = ArrayBuffer.empty[String]
  private var count = 0L
  private val converted = ByteBuffer.allocate(layout.rowBytes).order(ByteOrder.LITTLE_ENDIAN)
  private lazy val widened = new Array[Float](layout.width)

  /** The file whose records come now; empty where they come from none. */
  var file: String = ""

  /** What records are counted in where they have no place in a file, such as `partition 3 of the training rows`. */
  var countedIn: String = ""

  /** That of the next row, where the layout has weights: a finite number of at least 0. */
  var weight: Float = 1f

  /** Those of the next row behind its first, where it has several: the bits of numbers. */
  var otherLabels: Array[Int] = Array.emptyIntArray

  /** Where in the file this part of it begins, bytes; records are counted from there. */
  var partStart: Long = 0L

  protected def wantsFloats: Boolean = false
  protected def accept(row: Array[Byte], label: Int): Unit
  protected def acceptFloats(row: Array[Float], label: Int): Unit =
    throw new UnsupportedOperationException("this sink takes bytes")

  def skipped: Skipped = Skipped(count, listed.toList)

  /** A row of unsigned bytes, where the layout is of such. */
  def bytes(values: Array[Byte], label: Int, record: Long, offset: Long): Unit = {
    require(
      layout.kind == ValueKind.UInt8 && values.length == layout.width,
      s"${values.length} bytes for ${layout.shape}"
    )
    if (labelIsGood(label, record, offset)) {
      if (wantsFloats) {
        values.indices.foreach(i => widened(i) = (values(i) & 0xff).toFloat)
        acceptFloats(widened, label)
      } else accept(values, label)
    }
  }

  /** A row of numbers: all finite, and where the layout is of bytes whole and 0 to 255. */
  def floats(values: Array[Float], label: Int, record: Long, offset: Long): Unit = {
    require(values.length == layout.width, s"${values.length} values for ${layout.shape}")
    if (labelIsGood(label, record, offset)) {
      val wrong = if (layout.kind == ValueKind.UInt8) packBytes(values) else packFloats(values)
      if (wrong >= 0) {
        val column = layout.columns.lift(wrong).fold(s"value $wrong")(name => s"value $wrong (column '$name')")
        val valid =
          if (layout.kind == ValueKind.UInt8) "`data.held_as` = uint8 holds whole numbers from 0 to 255"
          else "values must be finite numbers"
        bad(record, offset, s"$column is ${values(wrong)}; $valid")
      } else if (wantsFloats) acceptFloats(values, label)
      else accept(converted.array, label)
    }
  }

  /**
   * A record that cannot be a row, and why.
   *
   * @param offset
   *   its first byte in the file, or RecordSink.NoOffset
   */
  def bad(record: Long, offset: Long, reason: String): Unit = {
    val part =
      if (countedIn.nonEmpty) s" of $countedIn" else if (partStart > 0) s" of the part from byte $partStart on" else ""
    val place = if (offset == RecordSink.NoOffset) "" else s", byte offset $offset"
    val text = s"${if (file.isEmpty) "Record" else s"File '$file', record"} $record$part$place: $reason."
    if (!skip)
      throw new BadRecordException(
        s"$text Fix ${if (file.isEmpty) "the rows" else "the file"}, or leave bad records out with data.on_error=skip (they are counted and listed " +
          "in run.json)."
      )
    count += 1
    if (listed.size < Skipped.MostListed) listed += text
    if (count > limit) throw new BadRecordException(Skipped.overLimit(skipped, limit))
  }

  private def labelIsGood(label: Int, record: Long, offset: Long): Boolean = {
    require(otherLabels.length == layout.labels - 1, s"${otherLabels.length + 1} labels in place of ${layout.labels}")
    val good = layout.hasNumbers || layout.takes(label)
    if (!good) bad(record, offset, s"the label is $label; ${layout.labelsSay}")
    good
  }

  /** The first value that does not fit, or -1. */
  private def packBytes(values: Array[Float]): Int = {
    val target = converted.array
    var i = 0
    while (i < values.length && values(i) >= 0 && values(i) <= 255 && values(i) == values(i).toInt) {
      target(i) = values(i).toInt.toByte
      i += 1
    }
    if (i == values.length) -1 else i
  }

  private def packFloats(values: Array[Float]): Int = {
    var i = 0
    while (i < values.length && !values(i).isNaN && !values(i).isInfinite) {
      converted.putFloat(i * 4, values(i)); i += 1
    }
    if (i == values.length) -1 else i
  }
}

private[data] object RecordSink {

  /** Of a record that no byte of a file begins. */
  val NoOffset: Long = -1L
}
