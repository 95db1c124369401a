package sparkdlbench.algorithm

import sparkdlbench.codec.Codec
import sparkdlbench.vector.FlatBuffer

import java.nio.{ByteBuffer, ByteOrder}

/** Weights as a lossy codec lets them arrive. */
private[sparkdlbench] object Rounding {

  /** Values that are rounded at once: what memory estimates do not count must be little. */
  private val Values = 1 << 16

  /**
   * After a checkpoint is read: everybody goes on from the rounded values that travelled; it holds the owners' own.
   *
   * @param codec
   *   of weights: one that rounds each value for itself
   */
  def asSent(codec: Codec, values: FlatBuffer): Unit = {
    val bytes = Math.toIntExact(codec.maxBytes(math.min(values.length, Values)))
    val encoded = ByteBuffer.allocateDirect(bytes).order(ByteOrder.nativeOrder())
    for (from <- 0 until values.length by Values) {
      val part = values.floatSlice(from, math.min(values.length, from + Values))
      val written = codec.encode(part, encoded)
      codec.decode(encoded.slice(0, written).order(ByteOrder.nativeOrder()), part)
    }
  }
}
