package sparkdlbench.codec

import sparkdlbench.config.{Key, Settings}
import sparkdlbench.engine.{FloatOps, Staging}

import java.nio.{ByteBuffer, ByteOrder, FloatBuffer}
import java.util.Arrays

/**
 * The k values of largest magnitude, exactly, with error feedback for the others (A. Aji, K. Heafield: Sparse Communication for
 * Distributed Gradient Descent, EMNLP 2017). k = ceil(codec.k_fraction × values), so the bytes are fixed: 8 k. Equal magnitudes
 * are taken in the order of their places; NaN counts as the largest, so a diverged training shows.
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

  def encode(source: FloatBuffer, target: ByteBuffer): Int = encodeValues(source.slice(), target, settle = false)

  override def encode(source: FloatBuffer, target: ByteBuffer, residual: FloatBuffer): Int = {
    FloatOps.addInto(residual, source)
    encodeValues(residual.slice(), target, settle = true)
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
    if (bytes.remaining() != k * 8L)
      throw new IllegalArgumentException(s"topk: ${bytes.remaining()} bytes for ${target.remaining()} values, not ${k * 8L}")
    val values = target.slice()
    var i = 0
    while (i < k) { use(values, bytes.getInt(i * 4), bytes.getFloat((k + i) * 4)); i += 1 }
  }

  /** @param settle whether what is sent is to become 0 in `values` */
  private def encodeValues(values: FloatBuffer, target: ByteBuffer, settle: Boolean): Int = {
    val bytes = target.slice().order(ByteOrder.nativeOrder())
    val k = kept(values.limit())
    if (k > 0) {
      val cut = select(values, k)
      var equalLeft = cut.equalTaken
      var sent = 0
      eachMagnitude(values) { (index, magnitude) =>
        val taken = magnitude > cut.magnitude || (magnitude == cut.magnitude && equalLeft > 0)
        if (taken) {
          if (magnitude == cut.magnitude) equalLeft -= 1
          bytes.putInt(sent * 4, index).putFloat((k + sent) * 4, values.get(index))
          if (settle) values.put(index, 0f)
          sent += 1
        }
      }
      assert(sent == k, s"$sent of $k values")
    }
    k * 8
  }
}

private[codec] object TopKEncoding {

  /** Sent are all values above `magnitude` (fp32 bits without the sign) and the first `equalTaken` of those equal to it. */
  private final case class Cut(magnitude: Int, equalTaken: Int)

  private val BinShift = 20
  private val Bins = 1 << (31 - BinShift)

  /** Finds the k-th largest magnitude: by a histogram of the upper bits, then among the values of the bin that holds it. */
  private def select(values: FloatBuffer, k: Int): Cut = {
    val counts = new Array[Int](Bins)
    eachMagnitude(values)((_, magnitude) => counts(magnitude >>> BinShift) += 1)
    var bin = Bins - 1
    var above = 0
    while (above + counts(bin) < k) { above += counts(bin); bin -= 1 }
    val candidates = new Array[Int](counts(bin))
    var found = 0
    eachMagnitude(values) { (_, magnitude) =>
      if (magnitude >>> BinShift == bin) { candidates(found) = magnitude; found += 1 }
    }
    Arrays.sort(candidates)
    val magnitude = candidates(candidates.length - (k - above))
    val larger = candidates.length - (lastPlace(candidates, magnitude) + 1)
    Cut(magnitude, k - above - larger)
  }

  private def lastPlace(sorted: Array[Int], value: Int): Int = {
    var place = Arrays.binarySearch(sorted, value)
    while (place + 1 < sorted.length && sorted(place + 1) == value) place += 1
    place
  }

  private def eachMagnitude(values: FloatBuffer)(use: (Int, Int) => Unit): Unit = {
    val staging = Staging.get()
    val bits = staging.firstBits
    FloatOps.eachChunk(values.limit()) { (at, size) =>
      staging.asFloats.put(0, values, at, size)
      staging.asBits.get(0, bits, 0, size)
      var i = 0
      while (i < size) { use(at + i, bits(i) & Int.MaxValue); i += 1 }
    }
  }
}
