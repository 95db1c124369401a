package sparkdlbench.codec

import sparkdlbench.common.RunFailedException
import sparkdlbench.config.{Key, Settings}
import sparkdlbench.vector.{FloatOps, Staging}

import java.nio.{BufferUnderflowException, ByteBuffer, ByteOrder, FloatBuffer, IntBuffer}

/**
 * Threshold encoding with error feedback, as DL4J's SharedTraining sends updates: a value of at least tau is sent as
 * +tau, one of at most -tau as -tau, everything else and what is over tau waits in the residual (N. Strom: Scalable
 * Distributed DNN Training Using Commodity GPU Cloud Computing, Interspeech 2015).
 *
 * A message is tau (fp32), a number (32 bits) and then, for a number >= 0, that many 32-bit words of index and, in bit
 * 31, sign; for -1, two bits a value (1: +tau, 2: -tau), sixteen to a word. The shorter of the two is sent: at most
 * 1/16 of fp32's bytes. Not for weights (one message moves a value by at most tau), nor where the sum of one step must
 * be exact.
 */
final class Threshold extends Codec with ThresholdEncoding {
  protected def tau: Float = Threshold.threshold.default.toFloat
}

object Threshold {
  val threshold: Key[Double] = {
    val number =
      Key.number("codec.threshold", "0.001", 0, "Threshold codec: the magnitude tau that a sent value stands for")
    number.copy(valid = "a number above 0 that fp32 can hold", parse = text => number.parse(text).filter(isUsable))
  }
  private def isUsable(value: Double): Boolean = value.toFloat > 0 && !value.toFloat.isInfinite
}

private final class ConfiguredThreshold(protected val tau: Float) extends ThresholdEncoding

private[codec] trait ThresholdEncoding extends Codec {
  import ThresholdEncoding._

  protected def tau: Float

  def name = "threshold"
  def doc =
    "Values beyond a threshold as plus or minus the threshold, the rest kept for later: at most 1/16 of fp32's bytes"
  override def keys: Seq[Key[_]] = Seq(Threshold.threshold)
  override def configured(settings: Settings): Codec = new ConfiguredThreshold(settings(Threshold.threshold).toFloat)

  def fixedBytes(count: Int): Option[Long] = if (count == 0) Some(0) else None
  def maxBytes(count: Int): Long = if (count == 0) 0 else HeaderBytes + bitmapWords(count) * 4L
  def lossless = false
  override def keepsResidual = true

  def encode(source: FloatBuffer, target: ByteBuffer): Int = encodeValues(source.slice(), target, None)

  override def encode(source: FloatBuffer, target: ByteBuffer, residual: FloatBuffer): Int = {
    FloatOps.addInto(residual, source)
    val values = residual.slice()
    encodeValues(values, target, Some(values))
  }

  def decode(source: ByteBuffer, target: FloatBuffer): Unit = {
    FloatOps.fill(target, 0f)
    decodeAdd(source, target)
  }

  def decodeAdd(source: ByteBuffer, target: FloatBuffer): Unit =
    // The buffers themselves check each index.
    try add(source, target)
    catch {
      case _: IndexOutOfBoundsException | _: BufferUnderflowException | _: IllegalArgumentException =>
        refuse(source, target)
    }

  private def add(source: ByteBuffer, target: FloatBuffer): Unit = if (target.remaining() > 0) {
    val bytes = source.slice().order(ByteOrder.nativeOrder())
    val (step, count) = (bytes.getFloat(0), bytes.getInt(4))
    val words = bytes.position(HeaderBytes).slice().order(ByteOrder.nativeOrder()).asIntBuffer()
    if (count == Bitmap) moveByBitmap(words, target.slice(), step)
    else moveByIndices(words, count, target.slice(), step)
  }

  /** @param reduced the buffer to take what is sent out of: `values` itself, or None */
  private def encodeValues(values: FloatBuffer, target: ByteBuffer, reduced: Option[FloatBuffer]): Int =
    if (values.remaining() == 0) 0
    else {
      val bytes = target.slice().order(ByteOrder.nativeOrder())
      val words = bytes.duplicate().position(HeaderBytes).slice().order(ByteOrder.nativeOrder()).asIntBuffer()
      val limit = bitmapWords(values.remaining())
      val count = collectIndices(values, words, limit, tau)
      bytes.putFloat(0, tau).putInt(4, count)
      if (count == Bitmap) {
        collectBitmap(values, words, tau)
        reduced.foreach(moveByBitmap(words, _, -tau))
        HeaderBytes + limit * 4
      } else {
        reduced.foreach(moveByIndices(words, count, _, -tau))
        HeaderBytes + count * 4
      }
    }
}

private[codec] object ThresholdEncoding {
  private val HeaderBytes = 8
  private val Bitmap = -1
  private val PerWord = 16
  private val Infinity = 0x7f800000 // its bits; those of NaN are above

  private def bitmapWords(count: Int): Int = ((count + PerWord - 1L) / PerWord).toInt

  /** Writes the indices of the values to send; returns how many, or `Bitmap` when they are more than `limit`. */
  private def collectIndices(values: FloatBuffer, words: IntBuffer, limit: Int, tau: Float): Int = {
    val staging = Staging.get()
    val found = staging.secondBits
    var count = 0
    var at = 0
    while (at < values.limit() && count <= limit) {
      val size = math.min(Staging.Length, values.limit() - at)
      val foundHere = findBeyond(staging.bitsOf(values, at, size), size, at, tau, found)
      words.put(count, found, 0, math.min(foundHere, limit - count))
      count += foundHere
      at += size
    }
    if (count <= limit) count else Bitmap
  }

  /** Writes index and sign of the values to send to the start of `found`, without a branch; returns how many. */
  private def findBeyond(bits: Array[Int], size: Int, at: Int, tau: Float, found: Array[Int]): Int = {
    val belowTau = java.lang.Float.floatToRawIntBits(tau) - 1
    var count = 0
    var largest = 0
    var i = 0
    while (i < size) {
      val magnitude = bits(i) & Int.MaxValue
      found(count) = (at + i) | (bits(i) & Int.MinValue)
      count += (belowTau - magnitude) >>> 31 // 1 from tau on: magnitudes are ordered as their bits are
      largest = math.max(largest, magnitude)
      i += 1
    }
    if (largest >= Infinity) failOnInfinity(bits, size, at)
    count
  }

  private def collectBitmap(values: FloatBuffer, words: IntBuffer, tau: Float): Unit = {
    val staging = Staging.get()
    val packed = staging.secondBits
    FloatOps.eachChunk(values.limit()) { (at, size) =>
      val bits = staging.bitsOf(values, at, size)
      java.util.Arrays.fill(bits, size, math.min(bits.length, size + PerWord), 0)
      pack(bits, bitmapWords(size), java.lang.Float.floatToRawIntBits(tau) - 1, packed)
      words.put(at / PerWord, packed, 0, bitmapWords(size))
      if (!(0 until size).forall(i => (bits(i) & Int.MaxValue) < Infinity)) failOnInfinity(bits, size, at)
    }
  }

  private def pack(bits: Array[Int], count: Int, belowTau: Int, packed: Array[Int]): Unit = {
    var word = 0
    while (word < count) {
      var codes = 0
      var i = PerWord - 1
      while (i >= 0) {
        val value = bits(word * PerWord + i)
        val isSent = (belowTau - (value & Int.MaxValue)) >>> 31
        codes = (codes << 2) | (isSent << (value >>> 31))
        i -= 1
      }
      packed(word) = codes
      word += 1
    }
  }

  private def moveByIndices(words: IntBuffer, count: Int, target: FloatBuffer, step: Float): Unit = {
    var i = 0
    while (i < count) {
      val word = words.get(i)
      val index = word & Int.MaxValue
      target.put(index, target.get(index) + (if (word < 0) -step else step))
      i += 1
    }
  }

  private def moveByBitmap(words: IntBuffer, target: FloatBuffer, step: Float): Unit = {
    val staging = Staging.get()
    val (values, packed) = (staging.first, staging.firstBits)
    val moves = Array(0f, step, -step, 0f)
    FloatOps.eachChunk(target.limit()) { (at, size) =>
      target.get(at, values, 0, size)
      words.get(at / PerWord, packed, 0, bitmapWords(size))
      move(values, size, packed, moves)
      target.put(at, values, 0, size)
    }
  }

  private def move(values: Array[Float], size: Int, packed: Array[Int], moves: Array[Float]): Unit = {
    var i = 0
    while (i < size) {
      values(i) += moves((packed(i >>> 4) >>> ((i & 15) << 1)) & 3)
      i += 1
    }
  }

  private def failOnInfinity(bits: Array[Int], size: Int, at: Int): Nothing = {
    val place = (0 until size).find(i => (bits(i) & Int.MaxValue) >= Infinity).get
    throw new RunFailedException(
      s"The codec 'threshold' was given the value ${java.lang.Float.intBitsToFloat(bits(place))} (place " +
        s"${at + place} of the vector), which " +
        "plus or minus a threshold cannot stand for. The training has diverged: lower optimizer.learning_rate, or " +
        "take the codec 'bf16' or 'fp32'."
    )
  }
}
