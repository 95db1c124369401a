package sparkdlbench.codec

import sparkdlbench.config.{Key, Settings}
import sparkdlbench.vector.{FloatOps, Staging}

import java.nio.{ByteBuffer, ByteOrder, FloatBuffer}
import scala.annotation.tailrec

/**
 * The k values of largest magnitude, exactly, with error feedback for the others (A. Aji, K. Heafield: Sparse
 * Communication for Distributed Gradient Descent, EMNLP 2017). k = ceil(codec.k_fraction × values), so the bytes are
 * fixed: 8 k. Equal magnitudes are taken in the order of their places; NaN counts as the largest, so a diverged
 * training shows.
 *
 * A message is k indices of 32 bits, ascending, and then their k fp32 values.
 * Not for weights, nor where the sum of one step must be exact.
 */
final class TopK extends Codec with TopKEncoding {
  protected def fraction: Double = TopK.kFraction.default.toDouble
}

object TopK {
  val kFraction: Key[Double] = {
    val number = Key.number("codec.k_fraction", "0.01", 0, "Top-k codec: share of the values that each message sends")
    number.copy(valid = "a number above 0, at most 1", parse = text => number.parse(text).filter(n => n > 0 && n <= 1))
  }
}

private final class ConfiguredTopK(protected val fraction: Double) extends TopKEncoding

private[codec] trait TopKEncoding extends Codec {
  import TopKEncoding._

  protected def fraction: Double

  def name = "topk"
  def doc = "The largest values by magnitude with their places, the rest kept for later: 8 bytes for each value sent"
  override def keys: Seq[Key[_]] = Seq(TopK.kFraction)
  override def configured(settings: Settings): Codec = new ConfiguredTopK(settings(TopK.kFraction))

  def fixedBytes(count: Int): Option[Long] = Some(maxBytes(count))
  def maxBytes(count: Int): Long = kept(count) * 8L
  def lossless = false
  override def keepsResidual = true

  def encode(source: FloatBuffer, target: ByteBuffer): Int = encodeValues(source.slice(), target, zeroesSent = false)

  override def encode(source: FloatBuffer, target: ByteBuffer, residual: FloatBuffer): Int = {
    FloatOps.addInto(residual, source)
    encodeValues(residual.slice(), target, zeroesSent = true)
  }

  def decode(source: ByteBuffer, target: FloatBuffer): Unit = {
    FloatOps.fill(target, 0f)
    eachSent(source, target)((values, index, value) => values.put(index, value))
  }

  def decodeAdd(source: ByteBuffer, target: FloatBuffer): Unit =
    eachSent(source, target)((values, index, value) => values.put(index, values.get(index) + value))

  private def kept(count: Int): Int = math.ceil(count * fraction).toInt

  private def eachSent(source: ByteBuffer, target: FloatBuffer)(use: (FloatBuffer, Int, Float) => Unit): Unit = {
    val bytes = source.slice().order(ByteOrder.nativeOrder())
    val k = kept(target.remaining())
    if (bytes.remaining() != k * 8L) refuse(source, target)
    val values = target.slice()
    var i = 0
    // The buffer itself checks each index.
    try while (i < k) { use(values, bytes.getInt(i * 4), bytes.getFloat((k + i) * 4)); i += 1 }
    catch { case _: IndexOutOfBoundsException => refuse(source, target) }
  }

  /** @param zeroesSent whether what is sent is to become 0 in `values` */
  private def encodeValues(values: FloatBuffer, target: ByteBuffer, zeroesSent: Boolean): Int = {
    val bytes = target.slice().order(ByteOrder.nativeOrder())
    val k = kept(values.limit())
    if (k > 0) {
      val places = choose(values, k)
      var i = 0
      while (i < k) {
        bytes.putInt(i * 4, places(i)).putFloat((k + i) * 4, values.get(places(i)))
        if (zeroesSent) values.put(places(i), 0f)
        i += 1
      }
    }
    k * 8
  }
}

private[codec] object TopKEncoding {

  /**
   * Chosen are all values above `magnitude` (fp32 bits without the sign) and the first `equalTaken` of those equal to
   * it.
   */
  private final case class Cut(magnitude: Int, equalTaken: Int)

  // A magnitude's 31 bits are looked at in three digits, of 11, 10 and 10 bits.
  private val FirstShift = 20
  private val FirstDigits = 1 << 11
  private val LaterBits = 10

  /** The places of the `k` largest magnitudes, ascending. */
  private def choose(values: FloatBuffer, k: Int): Array[Int] = {
    val staging = Staging.get()
    val cut = select(values, k, staging)
    val places = new Array[Int](k)
    var equalLeft = cut.equalTaken
    var count = 0
    FloatOps.eachChunk(values.limit()) { (at, size) =>
      val bits = staging.bitsOf(values, at, size)
      var i = 0
      while (i < size) {
        val magnitude = bits(i) & Int.MaxValue
        if (magnitude > cut.magnitude || (magnitude == cut.magnitude && equalLeft > 0)) {
          if (magnitude == cut.magnitude) equalLeft -= 1
          places(count) = at + i
          count += 1
        }
        i += 1
      }
    }
    assert(count == k, s"$count of $k values")
    places
  }

  /**
   * Finds the k-th largest magnitude by counting digits (a radix selection): two passes over the values, whatever they
   * are.
   */
  private def select(values: FloatBuffer, k: Int, staging: Staging): Cut = {
    val counts = new Array[Int](FirstDigits)
    FloatOps.eachChunk(values.limit())((at, size) => count(staging.bitsOf(values, at, size), size, FirstShift, counts))
    val (digit, rank) = digitOfRank(counts, k)
    val candidates = new Array[Int](counts(digit))
    var found = 0
    FloatOps.eachChunk(values.limit()) { (at, size) =>
      found = keep(staging.bitsOf(values, at, size), size, FirstShift, FirstDigits, digit, candidates, found)
    }
    among(candidates, found, rank, FirstShift - LaterBits)
  }

  /** The `rank`-th largest of `size` candidates that differ in the bits below `shift` + `LaterBits` alone. */
  @tailrec private def among(candidates: Array[Int], size: Int, rank: Int, shift: Int): Cut = {
    val counts = new Array[Int](1 << LaterBits)
    count(candidates, size, shift, counts)
    val (digit, rest) = digitOfRank(counts, rank)
    val kept = keep(candidates, size, shift, counts.length, digit, candidates, 0)
    if (shift == 0) Cut(candidates(0), rest) else among(candidates, kept, rest, shift - LaterBits)
  }

  private def count(bits: Array[Int], size: Int, shift: Int, counts: Array[Int]): Unit = {
    val mask = counts.length - 1
    var i = 0
    while (i < size) { counts(((bits(i) & Int.MaxValue) >>> shift) & mask) += 1; i += 1 }
  }

  /** The digit of the `rank`-th largest, and its rank among those with the same digit. */
  private def digitOfRank(counts: Array[Int], rank: Int): (Int, Int) = {
    var digit = counts.length - 1
    var left = rank
    while (counts(digit) < left) { left -= counts(digit); digit -= 1 }
    (digit, left)
  }

  /**
   * Copies the magnitudes with this digit to `kept` from place `from` on; returns the place after the last. May work in
   * place.
   */
  private def keep(
      bits: Array[Int],
      size: Int,
      shift: Int,
      digits: Int,
      digit: Int,
      kept: Array[Int],
      from: Int
  ): Int = {
    var count = from
    var i = 0
    while (i < size) {
      val magnitude = bits(i) & Int.MaxValue
      if (((magnitude >>> shift) & (digits - 1)) == digit) { kept(count) = magnitude; count += 1 }
      i += 1
    }
    count
  }
}
