package sparkdlbench.codec

import sparkdlbench.common.RunFailedException
import sparkdlbench.config.{Axis, Key, RunKeys, Settings, Variant, Variants}

import java.nio.{ByteBuffer, FloatBuffer}

/**
 * In which bytes fp32 values travel. Buffers are direct and in native byte order; positions and limits of the arguments
 * say which part is meant and are left unchanged. Sums are always made in fp32.
 */
trait Codec extends Variant {

  /** This codec with the parameters that the settings give it. Called once, before the first message. */
  def configured(settings: Settings): Codec = this

  /** Exact payload bytes for `count` values, or None where they depend on the values (then `maxBytes` bounds them). */
  def fixedBytes(count: Int): Option[Long]

  /** Upper bound of the payload bytes for `count` values. */
  def maxBytes(count: Int): Long

  /**
   * True where `decode(encode(x))` is x, bit for bit. A lossless codec whose `fixedBytes` are 4 a value encodes to the
   * values' own memory (native byte order), so topologies send that memory and never call it.
   */
  def lossless: Boolean

  /** True where the encoded bytes are the values' own memory, so that nothing has to be encoded or copied. */
  final def isRaw: Boolean = lossless && fixedBytes(1).contains(4L) && fixedBytes(1024).contains(4096L)

  /** Writes `source`'s remaining values from `target`'s position on; returns the bytes written. */
  def encode(source: FloatBuffer, target: ByteBuffer): Int

  /**
   * True where what a message leaves out is kept for the next one (error feedback: Seide et al., 1-Bit Stochastic
   * Gradient Descent, Interspeech 2014). The sender then owns one residual for each vector that it sends again and
   * again: as long as the vector, zero at first, given to the three-argument `encode`, part of the checkpoint.
   */
  def keepsResidual: Boolean = false

  /**
   * As `encode` of source + residual, after which residual is source + residual − what was sent. A codec that keeps no
   * residual leaves the argument alone.
   *
   * @param residual
   *   its remaining values are as many as `source`'s
   */
  def encode(source: FloatBuffer, target: ByteBuffer, residual: FloatBuffer): Int = encode(source, target)

  /**
   * Overwrites `target`'s remaining values with what `source`'s remaining bytes say.
   *
   * @throws sparkdlbench.common.RunFailedException
   *   they are no encoding of so many values; `target` may have changed then
   */
  def decode(source: ByteBuffer, target: FloatBuffer): Unit

  /** Adds what `source`'s remaining bytes say to `target`'s remaining values; refuses as `decode` does. */
  def decodeAdd(source: ByteBuffer, target: FloatBuffer): Unit

  /** For a message that is none of this codec's. */
  protected final def refuse(source: ByteBuffer, target: FloatBuffer): Nothing = throw new RunFailedException(
    s"A message of ${source.remaining} bytes is no encoding of ${target.remaining} values by the codec '$name'. Check that all executors run the same " +
      "version of this package with the same settings."
  )
}

final class CodecAxis extends Axis {
  def place = 4
  def name = "codec"
  def key: Key[String] = RunKeys.codec
  def variants: Seq[Variant] = Variants.all[Codec]
}
