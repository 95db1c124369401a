package sparkdlbench.codec
package fuzz

import sparkdlbench.config.Variants
import sparkdlbench.fuzz.FuzzTarget

import java.nio.{ByteBuffer, ByteOrder}

/** A message of each codec, for a vector of 40 values; the first byte tells which codec. */
object CodecFuzz extends FuzzTarget("codec") {
  private val Values = 40
  private lazy val codecs = Variants.all[Codec].sortBy(_.name).toIndexedSeq

  def seeds: Seq[Array[Byte]] = codecs.zipWithIndex.map { case (codec, number) =>
    val source = direct(4 * Values)
    (0 until Values).foreach(i => source.putFloat(4 * i, i * 0.1f))
    val target = direct(codec.maxBytes(Values).toInt)
    val bytes = new Array[Byte](codec.encode(source.asFloatBuffer(), target))
    target.get(0, bytes)
    number.toByte +: bytes
  }

  protected def read(input: Array[Byte]): Unit = if (input.nonEmpty) {
    val codec = codecs((input.head & 0xff) % codecs.size)
    val message = direct(input.length - 1)
    message.put(0, input, 1, input.length - 1)
    Seq(codec.decode _, codec.decodeAdd _).foreach(_(message, direct(4 * Values).asFloatBuffer()))
  }

  private def direct(bytes: Int): ByteBuffer = ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder())
}
