package sparkdlbench.collective

import sparkdlbench.collective.Reduction._

import java.nio.ByteBuffer

/**
 * What the bytes of a vector are. Integers wrap around at their width, as PyTorch's do. Of values with 16 bits each result is rounded to
 * nearest even, rank by rank. Of bool, one byte a value (0 or 1), sum and maximum are "or", product and minimum "and".
 *
 * @param bytes
 *   of one value
 */
sealed abstract class ElementType(val name: String, val bytes: Int) {

  /** Whether values have an average, and no bit operations. */
  def isFloatingPoint: Boolean = false

  /** Whether the reduction is defined for such values. */
  final def allows(reduction: Reduction): Boolean = reduction match {
    case Average => isFloatingPoint
    case BitAnd | BitOr | BitXor => !isFloatingPoint
    case Sum | Product | Min | Max => true
  }

  /** Combines each value of `into` with the value at the same place of `from`; both have as many bytes remaining, in native order. */
  private[collective] final def combine(reduction: Reduction, into: ByteBuffer, from: ByteBuffer): Unit = {
    require(into.remaining == from.remaining, s"${into.remaining} and ${from.remaining} bytes")
    require(allows(reduction), s"$name has no ${reduction.name}")
    combined(reduction, into, from, into.remaining / bytes)
  }

  protected def combined(reduction: Reduction, into: ByteBuffer, from: ByteBuffer, count: Int): Unit

  /** Divides each remaining value; floating point alone. */
  private[collective] def divide(values: ByteBuffer, by: Int): Unit =
    throw new IllegalStateException(s"$name has no average")
}

/** Values pass through arrays that stay in the first-level cache: C2 vectorises loops over arrays, not over direct buffers. */
object ElementType {
  private val Chunk = 1024

  private def eachChunk(count: Int)(use: (Int, Int) => Unit): Unit = {
    var at = 0
    while (at < count) {
      use(at, math.min(Chunk, count - at))
      at += Chunk
    }
  }

  /** Values that are computed with as fp32. */
  sealed abstract class Floats(name: String, bytes: Int) extends ElementType(name, bytes) {
    final override def isFloatingPoint: Boolean = true

    /** Reads `size` values from the `at`-th on. */
    protected def get(from: ByteBuffer, at: Int, values: Array[Float], size: Int): Unit
    protected def put(into: ByteBuffer, at: Int, values: Array[Float], size: Int): Unit

    protected final def combined(reduction: Reduction, into: ByteBuffer, from: ByteBuffer, count: Int): Unit = {
      val (results, others) = (new Array[Float](Chunk), new Array[Float](Chunk))
      eachChunk(count) { (at, size) =>
        get(into, at, results, size)
        get(from, at, others, size)
        Loops.floats(reduction, results, others, size)
        put(into, at, results, size)
      }
    }

    private[collective] final override def divide(values: ByteBuffer, by: Int): Unit = {
      val quotients = new Array[Float](Chunk)
      eachChunk(values.remaining / bytes) { (at, size) =>
        get(values, at, quotients, size)
        Loops.divide(quotients, by.toFloat, size)
        put(values, at, quotients, size)
      }
    }
  }

  case object Float32 extends Floats("fp32", 4) {
    protected def get(from: ByteBuffer, at: Int, values: Array[Float], size: Int): Unit =
      from.asFloatBuffer().get(at, values, 0, size): Unit
    protected def put(into: ByteBuffer, at: Int, values: Array[Float], size: Int): Unit =
      into.asFloatBuffer().put(at, values, 0, size): Unit
  }

  case object Float16 extends Floats("fp16", 2) {
    protected def get(from: ByteBuffer, at: Int, values: Array[Float], size: Int): Unit = {
      val codes = from.asShortBuffer()
      var i = 0
      while (i < size) { values(i) = SixteenBits.halfToFloat(codes.get(at + i)); i += 1 }
    }
    protected def put(into: ByteBuffer, at: Int, values: Array[Float], size: Int): Unit = {
      val codes = into.asShortBuffer()
      var i = 0
      while (i < size) { codes.put(at + i, SixteenBits.floatToHalf(values(i))); i += 1 }
    }
  }

  case object BFloat16 extends Floats("bf16", 2) {
    protected def get(from: ByteBuffer, at: Int, values: Array[Float], size: Int): Unit = {
      val codes = from.asShortBuffer()
      var i = 0
      while (i < size) { values(i) = SixteenBits.bfloatToFloat(codes.get(at + i)); i += 1 }
    }
    protected def put(into: ByteBuffer, at: Int, values: Array[Float], size: Int): Unit = {
      val codes = into.asShortBuffer()
      var i = 0
      while (i < size) { codes.put(at + i, SixteenBits.floatToBfloat(values(i))); i += 1 }
    }
  }

  case object Float64 extends ElementType("fp64", 8) {
    override def isFloatingPoint: Boolean = true
    protected def combined(reduction: Reduction, into: ByteBuffer, from: ByteBuffer, count: Int): Unit = {
      val (results, others) = (new Array[Double](Chunk), new Array[Double](Chunk))
      val (target, source) = (into.asDoubleBuffer(), from.asDoubleBuffer())
      eachChunk(count) { (at, size) =>
        target.get(at, results, 0, size)
        source.get(at, others, 0, size)
        Loops.doubles(reduction, results, others, size)
        target.put(at, results, 0, size): Unit
      }
    }
    private[collective] override def divide(values: ByteBuffer, by: Int): Unit = {
      val target = values.asDoubleBuffer()
      var i = 0
      while (i < target.limit()) { target.put(i, target.get(i) / by); i += 1 }
    }
  }

  /** Integers of up to 32 bits. */
  sealed abstract class Ints(name: String, bytes: Int) extends ElementType(name, bytes) {
    protected def get(from: ByteBuffer, at: Int, values: Array[Int], size: Int): Unit

    /** Keeps the lowest bits. */
    protected def put(into: ByteBuffer, at: Int, values: Array[Int], size: Int): Unit

    protected def combined(reduction: Reduction, into: ByteBuffer, from: ByteBuffer, count: Int): Unit = {
      val (results, others) = (new Array[Int](Chunk), new Array[Int](Chunk))
      eachChunk(count) { (at, size) =>
        get(into, at, results, size)
        get(from, at, others, size)
        Loops.ints(reduction, results, others, size)
        put(into, at, results, size)
      }
    }
  }

  /** One byte each, of which `mask` are the value's bits where it has no sign. */
  sealed abstract class Bytes(name: String, mask: Int) extends Ints(name, 1) {
    protected final def get(from: ByteBuffer, at: Int, values: Array[Int], size: Int): Unit = {
      val first = from.position() + at
      var i = 0
      while (i < size) { values(i) = from.get(first + i) & mask; i += 1 }
    }
    protected final def put(into: ByteBuffer, at: Int, values: Array[Int], size: Int): Unit = {
      val first = into.position() + at
      var i = 0
      while (i < size) { into.put(first + i, values(i).toByte); i += 1 }
    }
  }

  case object Int8 extends Bytes("int8", -1)
  case object UInt8 extends Bytes("uint8", 0xff)

  case object Bool extends Bytes("bool", 1) {
    protected override def combined(reduction: Reduction, into: ByteBuffer, from: ByteBuffer, count: Int): Unit = {
      val ofBits = reduction match {
        case Sum | Max => BitOr
        case Product | Min => BitAnd
        case bits => bits
      }
      super.combined(ofBits, into, from, count)
    }
  }

  case object Int16 extends Ints("int16", 2) {
    protected def get(from: ByteBuffer, at: Int, values: Array[Int], size: Int): Unit = {
      val source = from.asShortBuffer()
      var i = 0
      while (i < size) { values(i) = source.get(at + i).toInt; i += 1 }
    }
    protected def put(into: ByteBuffer, at: Int, values: Array[Int], size: Int): Unit = {
      val target = into.asShortBuffer()
      var i = 0
      while (i < size) { target.put(at + i, values(i).toShort); i += 1 }
    }
  }

  case object Int32 extends Ints("int32", 4) {
    protected def get(from: ByteBuffer, at: Int, values: Array[Int], size: Int): Unit =
      from.asIntBuffer().get(at, values, 0, size): Unit
    protected def put(into: ByteBuffer, at: Int, values: Array[Int], size: Int): Unit =
      into.asIntBuffer().put(at, values, 0, size): Unit
  }

  case object Int64 extends ElementType("int64", 8) {
    protected def combined(reduction: Reduction, into: ByteBuffer, from: ByteBuffer, count: Int): Unit = {
      val (results, others) = (new Array[Long](Chunk), new Array[Long](Chunk))
      val (target, source) = (into.asLongBuffer(), from.asLongBuffer())
      eachChunk(count) { (at, size) =>
        target.get(at, results, 0, size)
        source.get(at, others, 0, size)
        Loops.longs(reduction, results, others, size)
        target.put(at, results, 0, size): Unit
      }
    }
  }

  val all: Seq[ElementType] = Seq(Float32, Float64, Float16, BFloat16, Int8, UInt8, Int16, Int32, Int64, Bool)
}
