package sparkdlbench.results

import org.scalatest.Assertions

import java.nio.charset.StandardCharsets.US_ASCII
import java.nio.file.{Files, Path}
import java.nio.{ByteBuffer, ByteOrder}

/** Event files of TensorBoard, read as it would read them. */
object EventFile extends Assertions {

  /** The messages of a file of TFRecords, lengths and checksums checked. */
  def records(file: Path): Seq[Array[Byte]] = {
    val buffer = ByteBuffer.wrap(Files.readAllBytes(file)).order(ByteOrder.LITTLE_ENDIAN)
    Iterator
      .continually(())
      .takeWhile(_ => buffer.hasRemaining)
      .map { _ =>
        val head = take(buffer, 8)
        assert(take(buffer, 4).toSeq == TensorBoard.checksum(head).toSeq)
        val message = take(buffer, ByteBuffer.wrap(head).order(ByteOrder.LITTLE_ENDIAN).getLong.toInt)
        assert(take(buffer, 4).toSeq == TensorBoard.checksum(message).toSeq)
        message
      }
      .toList
  }

  /** Tag, step and value of each scalar, in their order. Steps and lengths of tags are below 128, so they are one byte. */
  def scalars(file: Path): Seq[(String, Int, Float)] = records(file).drop(1).map { message =>
    val buffer = ByteBuffer.wrap(message).order(ByteOrder.LITTLE_ENDIAN)
    def byte: Int = buffer.get().toInt
    def field(key: Int): Unit = {
      assert(byte == key)
      ()
    }
    field(0x09) // field 1, eight bytes: the time
    assert(buffer.getDouble > 0)
    field(0x10) // field 2: the step
    val step = byte
    field(0x2a) // field 5: the summary
    assert(byte == buffer.remaining)
    field(0x0a) // of its one value
    assert(byte == buffer.remaining)
    field(0x0a) // the tag
    val tag = new String(take(buffer, byte), US_ASCII)
    field(0x15) // and the number
    (tag, step, buffer.getFloat)
  }

  private def take(buffer: ByteBuffer, count: Int): Array[Byte] = {
    val taken = new Array[Byte](count)
    buffer.get(taken)
    taken
  }
}
