package sparkdlbench.data

import java.nio.{ByteBuffer, ByteOrder}
import scala.collection.mutable.ArrayBuilder

/**
 * Caffe's `Datum` (caffe.proto): an image and its class as a protocol buffer.
 *
 * @param data
 *   pixels as bytes, channels first; or a whole JPEG or PNG file where `encoded`
 * @param floats
 *   values as fp32, where there are no bytes
 */
private[data] final case class CaffeDatum(
    channels: Int,
    height: Int,
    width: Int,
    data: Array[Byte],
    label: Int,
    floats: Array[Float],
    encoded: Boolean
) {
  def values: Long = channels.toLong * height * width
}

private[data] object CaffeDatum {
  private val (varint, fixed64, delimited, fixed32) = (0, 1, 2, 5)

  /** The datum, or why the bytes are none. Allocates no more than the message's own length. */
  def parse(message: Array[Byte]): Either[String, CaffeDatum] =
    try Right(read(ByteBuffer.wrap(message).order(ByteOrder.LITTLE_ENDIAN)))
    catch {
      case _: java.nio.BufferUnderflowException => Left("its message is truncated")
      case cause: IllegalArgumentException => Left(s"its message is damaged (${cause.getMessage})")
    }

  private def read(in: ByteBuffer): CaffeDatum = {
    val numbers = new Array[Long](8)
    var data = Array.emptyByteArray
    val floats = new ArrayBuilder.ofFloat
    while (in.hasRemaining) {
      val tag = readVarint(in)
      val (field, wire) = ((tag >>> 3).toInt, (tag & 7).toInt)
      (field, wire) match {
        case (1 | 2 | 3 | 5 | 7, `varint`) => numbers(field) = readVarint(in)
        case (4, `delimited`) => data = take(in)
        case (6, `fixed32`) => floats += in.getFloat()
        case (6, `delimited`) => // packed
          val packed = ByteBuffer.wrap(take(in)).order(ByteOrder.LITTLE_ENDIAN)
          while (packed.hasRemaining) floats += packed.getFloat()
        case (0, _) => throw new IllegalArgumentException("field number 0")
        case _ => skip(in, wire)
      }
    }
    CaffeDatum(
      size(numbers(1)),
      size(numbers(2)),
      size(numbers(3)),
      data,
      numbers(5).toInt,
      floats.result(),
      numbers(7) != 0
    )
  }

  private def size(number: Long): Int = {
    if (number < 0 || number > (1 << 20)) throw new IllegalArgumentException(s"a size of $number")
    number.toInt
  }

  private def readVarint(in: ByteBuffer): Long = {
    var (value, shift, byte) = (0L, 0, 0x80)
    while ((byte & 0x80) != 0) {
      if (shift > 63) throw new IllegalArgumentException("a number of more than 10 bytes")
      byte = in.get() & 0xff
      value |= (byte & 0x7fL) << shift
      shift += 7
    }
    value
  }

  private def take(in: ByteBuffer): Array[Byte] = {
    val length = readVarint(in)
    if (length < 0 || length > in.remaining) throw new java.nio.BufferUnderflowException
    val bytes = new Array[Byte](length.toInt)
    in.get(bytes)
    bytes
  }

  private def skip(in: ByteBuffer, wire: Int): Unit = wire match {
    case `varint` => readVarint(in); ()
    case `fixed64` => in.getLong(); ()
    case `delimited` => take(in); ()
    case `fixed32` => in.getInt(); ()
    case other => throw new IllegalArgumentException(s"wire type $other")
  }
}
