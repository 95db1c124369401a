package sparkdlbench.topology

import sparkdlbench.codec.Codec
import sparkdlbench.config.Variants

import java.lang.Float.{floatToRawIntBits, intBitsToFloat}
import java.nio.{ByteBuffer, FloatBuffer}

/**
 * Codecs as plain as can be, one of each kind that topologies must tell apart; the laws hold for these and for the
 * real ones.
 */
object TestCodecs {
  val plain: Seq[Codec] = Seq(Plain, Padded, Truncated)

  /** Every codec of the project and the plain ones here. */
  def all: Seq[Codec] = plain ++ Seq(NonZeros) ++ Variants.all[Codec]

  private[topology] abstract class ByValue extends Codec {
    def doc = "for tests"
    def header: Int = 0
    def width: Int
    def write(target: ByteBuffer, at: Int, value: Float): Unit
    def read(source: ByteBuffer, at: Int): Float
    def fixedBytes(count: Int): Option[Long] = Some(header + width.toLong * count)
    def maxBytes(count: Int): Long = header + width.toLong * count
    def encode(source: FloatBuffer, target: ByteBuffer): Int = {
      (0 until source.remaining).foreach(i =>
        write(target, target.position() + header + i * width, source.get(source.position() + i))
      )
      header + source.remaining * width
    }
    def decode(source: ByteBuffer, target: FloatBuffer): Unit = each(source, target, adds = false)
    def decodeAdd(source: ByteBuffer, target: FloatBuffer): Unit = each(source, target, adds = true)

    /** Without a function of two values, which would make objects of all three: of a million, where nothing is optimised. */
    private def each(source: ByteBuffer, target: FloatBuffer, adds: Boolean): Unit = {
      require(source.remaining == header + target.remaining * width, s"$source for $target")
      (0 until target.remaining).foreach { i =>
        val at = target.position() + i
        val value = read(source, source.position() + header + i * width)
        target.put(at, if (adds) target.get(at) + value else value)
      }
    }
  }

  /** The values' own memory. */
  private object Plain extends ByValue {
    def name = "test-plain"
    def width = 4
    def lossless = true
    def write(target: ByteBuffer, at: Int, value: Float): Unit = target.putFloat(at, value)
    def read(source: ByteBuffer, at: Int): Float = source.getFloat(at)
  }

  /** Lossless, of fixed size, and not the values' memory: 3 more bytes a message, other byte order. */
  private object Padded extends ByValue {
    def name = "test-padded"
    override def header = 3
    def width = 4
    def lossless = true
    def write(target: ByteBuffer, at: Int, value: Float): Unit =
      target.putInt(at, Integer.reverseBytes(floatToRawIntBits(value)))
    def read(source: ByteBuffer, at: Int): Float = intBitsToFloat(Integer.reverseBytes(source.getInt(at)))
  }

  /** Lossy: the upper half of fp32. */
  private object Truncated extends ByValue {
    def name = "test-truncated"
    def width = 2
    def lossless = false
    def write(target: ByteBuffer, at: Int, value: Float): Unit =
      target.putShort(at, (floatToRawIntBits(value) >>> 16).toShort)
    def read(source: ByteBuffer, at: Int): Float = intBitsToFloat(source.getShort(at) << 16)
  }

  /**
   * Sends whole multiples of 8 and keeps the rest: error feedback. Of fixed size, so that every topology carries it.
   */
  object Remainders extends ByValue {
    def name = "test-remainders"
    def width = 4
    def lossless = false
    override def keepsResidual = true
    def write(target: ByteBuffer, at: Int, value: Float): Unit = target.putFloat(at, (value / 8).toInt * 8f)
    def read(source: ByteBuffer, at: Int): Float = source.getFloat(at)
    override def encode(source: FloatBuffer, target: ByteBuffer, residual: FloatBuffer): Int = {
      (0 until source.remaining).foreach { i =>
        val value = source.get(source.position() + i) + residual.get(residual.position() + i)
        write(target, target.position() + i * 4, value)
        residual.put(residual.position() + i, value - target.getFloat(target.position() + i * 4))
      }
      source.remaining * 4
    }
  }

  /** Of varying size, down to no byte at all: index and value of what is not 0. */
  private object NonZeros extends Codec {
    def name = "test-non-zeros"
    def doc = "for tests"
    def lossless = true
    def fixedBytes(count: Int): Option[Long] = None
    def maxBytes(count: Int): Long = 8L * count
    def encode(source: FloatBuffer, target: ByteBuffer): Int = {
      var at = target.position()
      (0 until source.remaining).foreach { i =>
        val value = source.get(source.position() + i)
        if (value != 0) { target.putInt(at, i).putFloat(at + 4, value); at += 8 }
      }
      at - target.position()
    }
    def decode(source: ByteBuffer, target: FloatBuffer): Unit = {
      (0 until target.remaining).foreach(i => target.put(target.position() + i, 0f))
      decodeAdd(source, target)
    }
    def decodeAdd(source: ByteBuffer, target: FloatBuffer): Unit =
      (source.position() until source.limit() by 8).foreach { at =>
        val index = target.position() + source.getInt(at)
        target.put(index, target.get(index) + source.getFloat(at + 4))
      }
  }
}
