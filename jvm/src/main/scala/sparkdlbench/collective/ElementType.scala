package sparkdlbench.collective

import sparkdlbench.collective.Reduction._

import java.nio.ByteBuffer

/**
 * What the bytes of a vector are. Integers wrap around at their width, as PyTorch's do.
 *
 * @param bytes
 *   of one value
 */
sealed abstract class ElementType(val name: String, val bytes: Int) {

  /** Whether values have an average. */
  def isFloatingPoint: Boolean = false

  /** Combines each value of `into` with the value at the same place of `from`; both have as many bytes remaining, in native order. */
  private[collective] def combine(reduction: Reduction, into: ByteBuffer, from: ByteBuffer): Unit

  /** Divides each remaining value; floating point alone. */
  private[collective] def divide(values: ByteBuffer, by: Int): Unit =
    throw new IllegalStateException(s"$name has no average")
}

object ElementType {
  // Interfaces of their own, since Scala's functions box Float.
  private trait OfFloats { def apply(a: Float, b: Float): Float }
  private trait OfDoubles { def apply(a: Double, b: Double): Double }
  private trait OfInts { def apply(a: Int, b: Int): Int }
  private trait OfLongs { def apply(a: Long, b: Long): Long }

  case object Float32 extends ElementType("fp32", 4) {
    override def isFloatingPoint: Boolean = true
    private[collective] def combine(reduction: Reduction, into: ByteBuffer, from: ByteBuffer): Unit = {
      val operation: OfFloats = reduction match {
        case Sum | Average => (a, b) => a + b
        case Product => (a, b) => a * b
        case Min => (a, b) => Math.min(a, b)
        case Max => (a, b) => Math.max(a, b)
      }
      places(into, from, bytes)((i, j) => into.putFloat(i, operation(into.getFloat(i), from.getFloat(j))))
    }
    private[collective] override def divide(values: ByteBuffer, by: Int): Unit =
      places(values, values, bytes)((i, _) => values.putFloat(i, values.getFloat(i) / by))
  }

  case object Float64 extends ElementType("fp64", 8) {
    override def isFloatingPoint: Boolean = true
    private[collective] def combine(reduction: Reduction, into: ByteBuffer, from: ByteBuffer): Unit = {
      val operation: OfDoubles = reduction match {
        case Sum | Average => (a, b) => a + b
        case Product => (a, b) => a * b
        case Min => (a, b) => Math.min(a, b)
        case Max => (a, b) => Math.max(a, b)
      }
      places(into, from, bytes)((i, j) => into.putDouble(i, operation(into.getDouble(i), from.getDouble(j))))
    }
    private[collective] override def divide(values: ByteBuffer, by: Int): Unit =
      places(values, values, bytes)((i, _) => values.putDouble(i, values.getDouble(i) / by))
  }

  case object Int8 extends ElementType("int8", 1) {
    private[collective] def combine(reduction: Reduction, into: ByteBuffer, from: ByteBuffer): Unit = {
      val operation = ofInts(this, reduction)
      places(into, from, bytes)((i, j) => into.put(i, operation(into.get(i).toInt, from.get(j).toInt).toByte))
    }
  }

  case object UInt8 extends ElementType("uint8", 1) {
    private[collective] def combine(reduction: Reduction, into: ByteBuffer, from: ByteBuffer): Unit = {
      val operation = ofInts(this, reduction)
      places(into, from, bytes)((i, j) => into.put(i, operation(into.get(i) & 0xff, from.get(j) & 0xff).toByte))
    }
  }

  case object Int16 extends ElementType("int16", 2) {
    private[collective] def combine(reduction: Reduction, into: ByteBuffer, from: ByteBuffer): Unit = {
      val operation = ofInts(this, reduction)
      places(into, from, bytes)((i, j) =>
        into.putShort(i, operation(into.getShort(i).toInt, from.getShort(j).toInt).toShort)
      )
    }
  }

  case object Int32 extends ElementType("int32", 4) {
    private[collective] def combine(reduction: Reduction, into: ByteBuffer, from: ByteBuffer): Unit = {
      val operation = ofInts(this, reduction)
      places(into, from, bytes)((i, j) => into.putInt(i, operation(into.getInt(i), from.getInt(j))))
    }
  }

  case object Int64 extends ElementType("int64", 8) {
    private[collective] def combine(reduction: Reduction, into: ByteBuffer, from: ByteBuffer): Unit = {
      val operation: OfLongs = reduction match {
        case Sum => (a, b) => a + b
        case Product => (a, b) => a * b
        case Min => (a, b) => Math.min(a, b)
        case Max => (a, b) => Math.max(a, b)
        case Average => throw new IllegalStateException(s"$name has no average")
      }
      places(into, from, bytes)((i, j) => into.putLong(i, operation(into.getLong(i), from.getLong(j))))
    }
  }

  val all: Seq[ElementType] = Seq(Float32, Float64, Int8, UInt8, Int16, Int32, Int64)

  private def ofInts(of: ElementType, reduction: Reduction): OfInts = reduction match {
    case Sum => (a, b) => a + b
    case Product => (a, b) => a * b
    case Min => (a, b) => Math.min(a, b)
    case Max => (a, b) => Math.max(a, b)
    case Average => throw new IllegalStateException(s"${of.name} has no average")
  }

  /** Calls `body` with the two indices of each value. */
  private def places(into: ByteBuffer, from: ByteBuffer, bytes: Int)(body: (Int, Int) => Unit): Unit = {
    require(into.remaining == from.remaining, s"${into.remaining} and ${from.remaining} bytes")
    val apart = from.position() - into.position()
    var i = into.position()
    while (i < into.limit()) {
      body(i, i + apart)
      i += bytes
    }
  }
}
