package org.apache.spark.sparkdlbench

import org.apache.spark.sql.DataFrame
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.expressions.objects.StaticInvoke
import org.apache.spark.sql.catalyst.expressions.{
  Alias,
  AttributeReference,
  CreateNamedStruct,
  GenericInternalRow,
  GetStructField,
  JoinedRow,
  Literal,
  UnsafeArrayData,
  UnsafeProjection,
  UnsafeRow
}
import org.apache.spark.sql.catalyst.plans.logical.{DeserializeToObject, MapPartitions, SerializeFromObject}
import org.apache.spark.sql.catalyst.util.ArrayData
import org.apache.spark.sql.sparkdlbench.Plans
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.types.UTF8String

/**
 * A row of a DataFrame as Spark holds it. `Dataset.mapPartitions` would make an object of each value of an array, in and out again, which
 * takes longer than a small net's predictions.
 */
final class HeldRow(private[sparkdlbench] val values: InternalRow) {
  def isNullAt(place: Int): Boolean = values.isNullAt(place)

  /** A number or a boolean, not null, of the column's type `kind`. */
  def float(place: Int, kind: DataType): Float = kind match {
    case DoubleType => values.getDouble(place).toFloat
    case FloatType => values.getFloat(place)
    case IntegerType => values.getInt(place).toFloat
    case LongType => values.getLong(place).toFloat
    case ShortType => values.getShort(place).toFloat
    case ByteType => values.getByte(place).toFloat
    case BooleanType => if (values.getBoolean(place)) 1f else 0f
    case decimal: DecimalType => values.getDecimal(place, decimal.precision, decimal.scale).toDouble.toFloat
    case other => throw new IllegalArgumentException(s"column $place is of type ${other.simpleString}, no number")
  }

  /** Number of values of an array or a vector, not null. */
  def size(place: Int, kind: DataType): Int = kind match {
    case _: ArrayType => values.getArray(place).numElements()
    case _ =>
      val vector = values.getStruct(place, HeldRow.VectorFields)
      if (vector.getByte(0) == 0) vector.getInt(1) else vector.getArray(3).numElements()
  }

  /**
   * The values of an array of numbers, or of a vector of MLlib's, old or new; not null. A null among them is NaN.
   *
   * @param found
   *   gets them; as long as `size` says
   */
  def read(place: Int, kind: DataType, found: Array[Float]): Unit = kind match {
    case ArrayType(element, mayHaveNulls) => HeldRow.read(values.getArray(place), element, mayHaveNulls, found)
    case _ =>
      val vector = values.getStruct(place, HeldRow.VectorFields)
      if (vector.getByte(0) == 0) HeldRow.sparse(vector.getArray(2), vector.getArray(3), found)
      else HeldRow.read(vector.getArray(3), DoubleType, mayHaveNulls = false, found)
  }

  /**
   * The row with more values behind its own.
   *
   * @param more
   *   numbers, null, and what `HeldRow.vector` and `HeldRow.text` make
   */
  def and(more: Array[Any]): HeldRow = new HeldRow(new JoinedRow(values, new GenericInternalRow(more)))
}

object HeldRow {

  /** As VectorUDT stores a vector: 0 sparse or 1 dense, its size, indices, values. */
  private val VectorFields = 4

  /** A dense vector as a column of Spark ML's vectors holds it. */
  def vector(values: Array[Double]): Any =
    new GenericInternalRow(Array[Any](1.toByte, null, null, UnsafeArrayData.fromPrimitiveArray(values)))

  def text(value: String): Any = UTF8String.fromString(value)

  /** What the rows of `mapped` are taken from. */
  def view(row: InternalRow): InternalRow = row

  /**
   * Whether all values are finite. Where one is not, all bits of its exponent are set, and one more at their end carries into its sign. Two at
   * a time.
   */
  def areFinite(found: Array[Float]): Boolean = {
    var carried = 0L
    var at = 0
    while (at < found.length / 2) {
      val two = Platform.getLong(found, Platform.FLOAT_ARRAY_OFFSET + 8L * at)
      carried |= (two & 0x7f8000007f800000L) + 0x0080000000800000L
      at += 1
    }
    if (found.length % 2 == 1)
      carried |= ((java.lang.Float.floatToRawIntBits(found(found.length - 1)) & 0x7f800000) + 0x00800000) & 0xffffffffL
    (carried & 0x8000000080000000L) == 0
  }

  /**
   * The frame's rows through `change`, partition by partition; nothing is computed before it is asked for. Works on streams, too.
   *
   * @param added
   *   columns behind the frame's own, which each row that `change` returns has values of
   * @param change
   *   a row that it gets is valid until it asks for the next one (`KeptRows` keeps some); each row that it returns must be so, too
   */
  def mapped(frame: DataFrame, added: Seq[StructField], change: Iterator[HeldRow] => Iterator[HeldRow]): DataFrame = {
    val before = Plans.of(frame)
    val schema = StructType(frame.schema.fields ++ added)
    val fields = before.output.zipWithIndex.flatMap { case (column, at) => Seq(Literal(s"c$at"), column) }
    // With a type of its own that no other plan has, so that the optimizer leaves it be.
    val read = StaticInvoke(classOf[HeldRow], ObjectType(classOf[InternalRow]), "view", Seq(CreateNamedStruct(fields)))
    val rows = DeserializeToObject(read, AttributeReference("row", read.dataType, nullable = false)(), before)
    val changed = MapPartitions(
      found =>
        change(found.map(row => new HeldRow(row.asInstanceOf[InternalRow])))
          .map(_.values),
      AttributeReference("changed", schema, nullable = false)(),
      rows
    )
    val columns = schema.fields.toSeq.zipWithIndex.map { case (field, at) =>
      Alias(GetStructField(changed.outputObjAttr, at), field.name)(explicitMetadata = Some(field.metadata))
    }
    Plans.frame(frame, SerializeFromObject(columns, changed))
  }

  private def read(array: ArrayData, element: DataType, mayHaveNulls: Boolean, found: Array[Float]): Unit = {
    (array, element) match {
      case (packed: UnsafeArrayData, FloatType) => packedFloats(packed, found)
      case (packed: UnsafeArrayData, DoubleType) => packedDoubles(packed, found)
      case _ => one(array, element, found)
    }
    if (mayHaveNulls && hasNulls(array)) nullsAsNaN(array, found)
  }

  private def nullsAsNaN(array: ArrayData, found: Array[Float]): Unit = {
    var at = 0
    while (at < found.length) {
      if (array.isNullAt(at)) found(at) = Float.NaN
      at += 1
    }
  }

  /** False where there are none for sure. A packed array has a bit for each value, behind its length, 64 of them in a word. */
  private def hasNulls(array: ArrayData): Boolean = array match {
    case packed: UnsafeArrayData =>
      var at = packed.getBaseOffset + 8
      val end = valuesAt(packed)
      while (at < end && Platform.getLong(packed.getBaseObject, at) == 0L) at += 8
      at < end
    case _ => true
  }

  private def packedFloats(array: UnsafeArrayData, found: Array[Float]): Unit = Platform.copyMemory(
    array.getBaseObject,
    valuesAt(array),
    found,
    Platform.FLOAT_ARRAY_OFFSET.toLong,
    4L * found.length
  )

  private def packedDoubles(array: UnsafeArrayData, found: Array[Float]): Unit = {
    val (base, first) = (array.getBaseObject, valuesAt(array))
    var at = 0
    while (at < found.length) { found(at) = Platform.getDouble(base, first + 8L * at).toFloat; at += 1 }
  }

  private def valuesAt(array: UnsafeArrayData): Long =
    array.getBaseOffset + UnsafeArrayData.calculateHeaderPortionInBytes(array.numElements())

  /** One by one, from whatever holds them; what is null is left. */
  private def one(array: ArrayData, element: DataType, found: Array[Float]): Unit = {
    val value: Int => Float = element match {
      case FloatType => array.getFloat
      case DoubleType => array.getDouble(_).toFloat
      case IntegerType => array.getInt(_).toFloat
      case LongType => array.getLong(_).toFloat
      case ShortType => array.getShort(_).toFloat
      case ByteType => array.getByte(_).toFloat
      case BooleanType => at => if (array.getBoolean(at)) 1f else 0f
      case decimal: DecimalType => array.getDecimal(_, decimal.precision, decimal.scale).toDouble.toFloat
      case other => throw new IllegalArgumentException(s"the array has values of type ${other.simpleString}")
    }
    var at = 0
    while (at < found.length) {
      if (!array.isNullAt(at)) found(at) = value(at)
      at += 1
    }
  }

  private def sparse(indices: ArrayData, values: ArrayData, found: Array[Float]): Unit = {
    java.util.Arrays.fill(found, 0f)
    var at = 0
    while (at < indices.numElements()) { found(indices.getInt(at)) = values.getDouble(at).toFloat; at += 1 }
  }
}

/**
 * Room for rows that are needed after the next ones have been read. It is used again for the rows of the next batch: rows of some kilobytes,
 * each in memory of its own, would keep the collector busy and come from no cache.
 *
 * @param kinds
 *   of the rows' columns
 * @param most
 *   that are kept at a time
 */
final class KeptRows(kinds: Seq[DataType], most: Int) {
  private val packing = UnsafeProjection.create(kinds.toArray)
  private val memory = new Array[Array[Byte]](most)

  /** The row, valid until another one is kept at the same place, from 0 to `most` - 1. */
  def keep(at: Int, row: HeldRow): HeldRow = {
    val packed = packing(row.values)
    val size = packed.getSizeInBytes
    if (memory(at) == null || memory(at).length < size) memory(at) = new Array[Byte](size)
    val (own, start) = (memory(at), Platform.BYTE_ARRAY_OFFSET.toLong)
    Platform.copyMemory(packed.getBaseObject, packed.getBaseOffset, own, start, size.toLong)
    val kept = new UnsafeRow(kinds.length)
    kept.pointTo(own, start, size)
    new HeldRow(kept)
  }
}
