package sparkdlbench.topology

import sparkdlbench.codec.Codec
import sparkdlbench.common.ConfigurationException
import sparkdlbench.vector.{FlatBuffer, Slices, VectorPart}

import java.nio.{ByteBuffer, ByteOrder, FloatBuffer}

/** A codec, and what topologies need to know of it. */
private[topology] final class WireCodec(val codec: Codec) {

  /**
   * True where the encoded bytes are the values' own memory (see `Codec.lossless`), so nothing is encoded or copied.
   */
  val raw: Boolean = codec.isRaw

  /** True where encoded slices can be joined and told apart again. */
  val fixedSize: Boolean = codec.fixedBytes(1).nonEmpty

  /** Bytes to keep for `count` values. */
  def bytes(count: Int): Long = if (count == 0) 0 else codec.fixedBytes(count).getOrElse(codec.maxBytes(count))
}

/**
 * One bucket of a vector as it travels: its slices' encodings, one after the other. For a raw codec that is the
 * vector's own memory; for others a direct buffer of its own, where an encoding of varying size starts at its slice's
 * place.
 *
 * @param travels
 *   false where this rank sends and receives nothing, so that no memory is needed
 * @param residual
 *   what the codec left out so far, for the whole vector, where it keeps that
 */
private[topology] final class Wire(
    vector: FlatBuffer,
    from: Int,
    val slices: Slices,
    val codec: WireCodec,
    travels: Boolean,
    residual: Option[FlatBuffer]
) {
  private val offsets: Array[Int] =
    (0 until slices.parts).map(slice => codec.bytes(slices.size(slice))).scanLeft(0L)(_ + _).map(Wire.toInt).toArray
  private val image: ByteBuffer =
    if (codec.raw) vector.byteSlice(from, from + slices.length)
    else ByteBuffer.allocateDirect(if (travels) offsets.last else 0).order(ByteOrder.nativeOrder())
  private val values: Array[FloatBuffer] = Array.tabulate(slices.parts)(slice => floats(slice, slice + 1))
  private val residuals: Array[FloatBuffer] = residual.toArray.flatMap(left =>
    Array.tabulate(slices.parts)(slice => left.floatSlice(from + slices.from(slice), from + slices.until(slice)))
  )
  private val encoded: Array[ByteBuffer] =
    if (codec.raw || !travels) Array.empty else Array.tabulate(slices.parts)(slice => bytes(slice, slice + 1))

  /** Place of `slice`'s encoding in the image, bytes; `slice` may be the number of slices. */
  def offset(slice: Int): Int = offsets(slice)

  /** The image of some slices: what a message holds, at most. */
  def bytes(fromSlice: Int, untilSlice: Int): ByteBuffer =
    image.slice(offsets(fromSlice), offsets(untilSlice) - offsets(fromSlice)).order(ByteOrder.nativeOrder())

  /** Where `image`, some slices from `fromSlice` on, lies in the vector; None where it is an encoding. */
  def part(fromSlice: Int, image: ByteBuffer): Option[VectorPart] =
    if (!codec.raw) None
    else Some(VectorPart(image, vector.file, 4 * (from + slices.from(fromSlice))))

  /** The values of some slices, in the vector itself. */
  def floats(fromSlice: Int, untilSlice: Int): FloatBuffer =
    vector.floatSlice(from + slices.from(fromSlice), from + slices.from(untilSlice))

  /** Vector to image; returns the bytes of the last slice's encoding. */
  def encode(fromSlice: Int, untilSlice: Int): Int = {
    var bytes = 0
    var slice = fromSlice
    while (slice < untilSlice) {
      if (slices.size(slice) > 0) bytes = encodeOne(slice)
      slice += 1
    }
    bytes
  }

  /** Image to vector. */
  def decode(fromSlice: Int, untilSlice: Int): Unit = {
    var slice = fromSlice
    while (slice < untilSlice) {
      if (slices.size(slice) > 0) codec.codec.decode(encoded(slice), values(slice))
      slice += 1
    }
  }

  /** Adds what `message`, an image of these slices, says to the vector. */
  def decodeAdd(message: ByteBuffer, fromSlice: Int, untilSlice: Int): Unit = {
    var slice = fromSlice
    while (slice < untilSlice) {
      if (slices.size(slice) > 0) codec.codec.decodeAdd(part(message, slice, fromSlice), values(slice))
      slice += 1
    }
    message.clear()
  }

  /** Overwrites `target`, or adds to it, with what `message`, an image of these slices, says. */
  def decodeTo(message: ByteBuffer, fromSlice: Int, untilSlice: Int, target: FloatBuffer, add: Boolean): Unit = {
    var slice = fromSlice
    while (slice < untilSlice) {
      if (slices.size(slice) > 0) {
        target.limit(slices.until(slice) - slices.from(fromSlice)).position(slices.from(slice) - slices.from(fromSlice))
        if (add) codec.codec.decodeAdd(part(message, slice, fromSlice), target)
        else codec.codec.decode(part(message, slice, fromSlice), target)
      }
      slice += 1
    }
    message.clear()
    target.clear()
  }

  private def encodeOne(slice: Int): Int =
    if (residuals.length == 0) codec.codec.encode(values(slice), encoded(slice))
    else codec.codec.encode(values(slice), encoded(slice), residuals(slice))

  private def part(message: ByteBuffer, slice: Int, fromSlice: Int): ByteBuffer =
    if (codec.fixedSize)
      message.limit(offsets(slice + 1) - offsets(fromSlice)).position(offsets(slice) - offsets(fromSlice))
    else message
}

private[topology] object Wire {
  private def toInt(bytes: Long): Int =
    if (bytes <= Int.MaxValue) bytes.toInt
    else
      throw new ConfigurationException(
        s"One bucket would need up to $bytes bytes on the wire, over the limit of ${Int.MaxValue}; use smaller buckets."
      )
}
