package sparkdlbench.vector

import java.nio.{ByteBuffer, ByteOrder, FloatBuffer, IntBuffer}

/**
 * Arithmetic on direct fp32 buffers. C2 does not vectorise loops over direct buffers, but loops over arrays; so values
 * pass through arrays of 4 KiB that stay in the first-level cache, by bulk copies. Each function takes the values
 * between position and limit and leaves both unchanged. Results depend on the values alone.
 */
object FloatOps {

  /** target = source. Same number of values. */
  def copy(source: FloatBuffer, target: FloatBuffer): Unit = {
    checkLengths(target, source)
    target.put(target.position(), source, source.position(), source.remaining())
  }

  /** target = value. */
  def fill(target: FloatBuffer, value: Float): Unit = {
    val values = Staging.get().first
    val count = math.min(target.remaining(), values.length)
    java.util.Arrays.fill(values, 0, count, value)
    eachChunk(target.remaining())((at, size) => target.put(target.position() + at, values, 0, size))
  }

  /** target += source. */
  def addInto(target: FloatBuffer, source: FloatBuffer): Unit = {
    checkLengths(target, source)
    val staging = Staging.get()
    val (sums, values) = (staging.first, staging.second)
    eachChunk(target.remaining()) { (at, size) =>
      target.get(target.position() + at, sums, 0, size)
      source.get(source.position() + at, values, 0, size)
      addArrays(sums, values, size)
      target.put(target.position() + at, sums, 0, size)
    }
  }

  /** target = ((sources(0) + sources(1)) + sources(2)) + …, in this order; target may be one of the sources. */
  def sumInto(target: FloatBuffer, sources: Seq[FloatBuffer]): Unit = sumInto(target, sources.toArray)

  /** The same of an array that the caller keeps, so that nothing is allocated. */
  def sumInto(target: FloatBuffer, parts: Array[FloatBuffer]): Unit = {
    if (parts.isEmpty) throw new IllegalArgumentException("a sum of no vectors")
    parts.foreach(checkLengths(target, _))
    val staging = Staging.get()
    val (sums, values) = (staging.first, staging.second)
    eachChunk(target.remaining()) { (at, size) =>
      parts(0).get(parts(0).position() + at, sums, 0, size)
      var part = 1
      while (part < parts.length) {
        parts(part).get(parts(part).position() + at, values, 0, size)
        addArrays(sums, values, size)
        part += 1
      }
      target.put(target.position() + at, sums, 0, size)
    }
  }

  /** target *= factor. */
  def scale(target: FloatBuffer, factor: Float): Unit = {
    val values = Staging.get().first
    eachChunk(target.remaining()) { (at, size) =>
      target.get(target.position() + at, values, 0, size)
      scaleArray(values, factor, size)
      target.put(target.position() + at, values, 0, size)
    }
  }

  /** The sum of the squares, in double precision. */
  def sumOfSquares(source: FloatBuffer): Double = {
    val values = Staging.get().first
    var sum = 0.0
    eachChunk(source.remaining()) { (at, size) =>
      source.get(source.position() + at, values, 0, size)
      sum += squareArray(values, size)
    }
    sum
  }

  /** target += factor × source. */
  def addScaledInto(target: FloatBuffer, source: FloatBuffer, factor: Float): Unit = {
    checkLengths(target, source)
    val staging = Staging.get()
    val (sums, values) = (staging.first, staging.second)
    eachChunk(target.remaining()) { (at, size) =>
      target.get(target.position() + at, sums, 0, size)
      source.get(source.position() + at, values, 0, size)
      addScaledArrays(sums, values, factor, size)
      target.put(target.position() + at, sums, 0, size)
    }
  }

  /** Calls `use`(offset, size) for consecutive chunks of at most `Staging.Length` values. */
  private[sparkdlbench] def eachChunk(length: Int)(use: (Int, Int) => Unit): Unit = {
    var at = 0
    while (at < length) {
      val size = math.min(Staging.Length, length - at)
      use(at, size)
      at += size
    }
  }

  private def checkLengths(target: FloatBuffer, source: FloatBuffer): Unit =
    if (target.remaining() != source.remaining())
      throw new IllegalArgumentException(s"vectors of ${target.remaining()} and ${source.remaining()} values")

  // Each loop stands alone: C2 compiles and vectorises it once, whatever inlines it.

  private[sparkdlbench] def addArrays(sums: Array[Float], values: Array[Float], size: Int): Unit = {
    var i = 0
    while (i < size) { sums(i) += values(i); i += 1 }
  }

  private def scaleArray(values: Array[Float], factor: Float, size: Int): Unit = {
    var i = 0
    while (i < size) { values(i) *= factor; i += 1 }
  }

  private def squareArray(values: Array[Float], size: Int): Double = {
    var sum = 0.0
    var i = 0
    while (i < size) { sum += values(i).toDouble * values(i); i += 1 }
    sum
  }

  private def addScaledArrays(sums: Array[Float], values: Array[Float], factor: Float, size: Int): Unit = {
    var i = 0
    while (i < size) { sums(i) += factor * values(i); i += 1 }
  }
}

/** One thread's arrays of `Staging.Length` values. Nothing in them outlives a call of the function that uses them. */
private[sparkdlbench] final class Staging {
  val first = new Array[Float](Staging.Length)
  val second = new Array[Float](Staging.Length)
  val third = new Array[Float](Staging.Length)
  val fourth = new Array[Float](Staging.Length)
  val firstBits = new Array[Int](Staging.Length)
  val secondBits = new Array[Int](Staging.Length)
  private val bytes = ByteBuffer.allocateDirect(Staging.Length * 4).order(ByteOrder.nativeOrder())

  /** The same memory as fp32 values and as their bits: C2 of JDK 17 does not vectorise Float.floatToRawIntBits. */
  val asFloats: FloatBuffer = bytes.asFloatBuffer()
  val asBits: IntBuffer = bytes.asIntBuffer()

  /**
   * The bits of `size` values of `source` from `index` on, at the start of `firstBits`; the values stay in `asFloats`.
   */
  def bitsOf(source: FloatBuffer, index: Int, size: Int): Array[Int] = {
    asFloats.put(0, source, index, size)
    asBits.get(0, firstBits, 0, size)
    firstBits
  }
}

private[sparkdlbench] object Staging {

  /** Values an array: 4 KiB, so that a few arrays fit a first-level cache of 32 KiB. Measured best of 512 to 4,096. */
  val Length = 1024
  private val perThread: ThreadLocal[Staging] = ThreadLocal.withInitial(() => new Staging)
  def get(): Staging = perThread.get()
}
