package sparkdlbench.algorithm

import sparkdlbench.codec.Codec
import sparkdlbench.engine.FlatBuffer

import java.nio.ByteOrder

/** Weights as a lossy codec lets them arrive. */
private[algorithm] object Rounding {

  /** After a checkpoint is read: everybody goes on from the rounded values that travelled; it holds the owners' own. */
  def asSent(codec: Codec, values: FlatBuffer): Unit = {
    val encoded = new FlatBuffer(Math.toIntExact((codec.maxBytes(values.length) + 3) / 4)).bytes
    val written = codec.encode(values.floats, encoded)
    codec.decode(encoded.slice(0, written).order(ByteOrder.nativeOrder()), values.floats)
  }
}
