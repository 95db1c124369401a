package sparkdlbench.codec

import sparkdlbench.config.Variant

import java.nio.{ByteBuffer, FloatBuffer}

/**
 * In which bytes fp32 values travel. Buffers are direct and in native byte order; positions and limits of the arguments
 * say which part is meant and are left unchanged. Sums are always made in fp32.
 */
trait Codec extends Variant {

  /** Exact payload bytes for `count` values, or None where they depend on the values (then `maxBytes` bounds them). */
  def fixedBytes(count: Int): Option[Long]

  /** Upper bound of the payload bytes for `count` values. */
  def maxBytes(count: Int): Long

  /**
   * True where `decode(encode(x))` is x, bit for bit. A lossless codec whose `fixedBytes` are 4 a value encodes to the values'
   * own memory (native byte order), so topologies send that memory and never call it.
   */
  def lossless: Boolean

  /** Writes `source`'s remaining values from `target`'s position on; returns the bytes written. */
  def encode(source: FloatBuffer, target: ByteBuffer): Int

  /** Overwrites `target`'s remaining values with what `source`'s remaining bytes say. */
  def decode(source: ByteBuffer, target: FloatBuffer): Unit

  /** Adds what `source`'s remaining bytes say to `target`'s remaining values. */
  def decodeAdd(source: ByteBuffer, target: FloatBuffer): Unit
}
