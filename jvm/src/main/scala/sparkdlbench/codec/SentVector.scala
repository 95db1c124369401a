package sparkdlbench.codec

import sparkdlbench.vector.FlatBuffer

import java.nio.ByteBuffer

/**
 * A vector that one place sends again and again, piece by piece: its codec and, where that keeps one, what it has left out
 * so far (`Codec.keepsResidual`).
 */
final class SentVector(val codec: Codec, vector: FlatBuffer) {
  private val residual: FlatBuffer = if (codec.keepsResidual) new FlatBuffer(vector.length) else null

  /** What was left out so far; None where the codec leaves nothing out. */
  def leftOut: Option[FlatBuffer] = Option(residual)

  /** Whether pieces travel as the vector's own memory. */
  val isRaw: Boolean = codec.isRaw

  /**
   * Values [`from`, `until`) as they travel: the vector's own memory where that `isRaw`, else what was written to `target`.
   *
   * @param target
   *   direct, in native order, with room for the encoding from its position on; where `isRaw` it is left alone and may be null
   */
  def encoded(from: Int, until: Int, target: ByteBuffer): ByteBuffer =
    if (isRaw) vector.byteSlice(from, until)
    else {
      val values = vector.floatSlice(from, until)
      val written =
        if (residual == null) codec.encode(values, target)
        else codec.encode(values, target, residual.floatSlice(from, until))
      target.duplicate().limit(target.position() + written)
    }
}
