package sparkdlbench.results

import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Key, KeyGroup}

import java.io.{ByteArrayOutputStream, IOException, OutputStream}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path, Paths, StandardOpenOption}
import java.nio.{ByteBuffer, ByteOrder}
import java.util.zip.CRC32C

/**
 * Scalars of a run as TensorBoard reads them: an event file of TFRecords (length, its checksum, a message, its checksum), each
 * message an `Event` of tensorflow/core/util/event.proto, written by hand because it needs six fields. Flushed after each
 * scalar, so that a running training can be watched. Used by one thread.
 */
final class TensorBoard private (file: OutputStream) extends RunLogger {
  import TensorBoard._

  def name: String = "TensorBoard"

  def scalar(tag: String, step: Long, value: Double): Unit = if (!value.isNaN) {
    val point = new Message().text(1, tag).float(2, value.toFloat)
    record(event.varint(2, step).message(5, new Message().message(1, point)))
  }

  private def event = new Message().double(1, System.currentTimeMillis() / 1e3)

  private def record(message: Message): Unit = {
    val bytes = message.bytes
    val length = ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN).putLong(bytes.length.toLong).array()
    Seq(length, checksum(length), bytes, checksum(bytes)).foreach(part => file.write(part))
    file.flush()
  }

  def ended(status: String): Unit = ()

  override def close(): Unit = file.close()
}

object TensorBoard {
  val folder: Key[String] = Key.text(
    "tensorboard.dir",
    "",
    "Local folder below which each run writes a TensorBoard event file (losses and accuracy by epoch); empty: none"
  )
  val keys: Seq[Key[_]] = Seq(folder)

  /** Makes `<folder>/<run>/events.out.tfevents.…`. */
  def create(folder: String, run: String): TensorBoard = {
    val place = Paths.get(folder, run)
    try {
      val seconds = System.currentTimeMillis() / 1000
      val made = new TensorBoard(open(Files.createDirectories(place).resolve(s"events.out.tfevents.$seconds.sparkdl")))
      made.record(made.event.text(3, "brain.Event:2"))
      made
    } catch {
      case error: IOException =>
        throw new ConfigurationException(
          s"The TensorBoard folder $place cannot be written (${error.getMessage}). Name a local folder that can be, with --set tensorboard.dir=DIR, " +
            "or leave it empty.",
          error
        )
    }
  }

  private def open(file: Path): OutputStream =
    Files.newOutputStream(file, StandardOpenOption.CREATE, StandardOpenOption.WRITE, StandardOpenOption.APPEND)

  /** TFRecord's masked CRC-32C, little-endian. */
  private[results] def checksum(bytes: Array[Byte]): Array[Byte] = {
    val crc = new CRC32C()
    crc.update(bytes, 0, bytes.length)
    val value = crc.getValue.toInt
    val masked = ((value >>> 15) | (value << 17)) + 0xa282ead8
    ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putInt(masked).array()
  }

  /** A protocol buffer message, field by field. */
  private final class Message {
    private val out = new ByteArrayOutputStream()
    def bytes: Array[Byte] = out.toByteArray

    def varint(field: Int, value: Long): Message = tagged(field, 0)(number(value))
    def double(field: Int, value: Double): Message =
      tagged(field, 1)(out.write(ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN).putDouble(value).array(), 0, 8))
    def float(field: Int, value: Float): Message =
      tagged(field, 5)(out.write(ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putFloat(value).array(), 0, 4))
    def text(field: Int, value: String): Message = sized(field, value.getBytes(UTF_8))
    def message(field: Int, value: Message): Message = sized(field, value.bytes)

    private def sized(field: Int, value: Array[Byte]): Message = tagged(field, 2) {
      number(value.length.toLong)
      out.write(value, 0, value.length)
    }

    private def tagged(field: Int, kind: Int)(write: => Unit): Message = {
      number((field << 3 | kind).toLong)
      write
      this
    }

    private def number(value: Long): Unit = {
      var left = value
      while ((left & ~0x7fL) != 0) {
        out.write(((left & 0x7f) | 0x80).toInt)
        left >>>= 7
      }
      out.write(left.toInt)
    }
  }
}

final class TensorBoardKeys extends KeyGroup {
  def keys: Seq[Key[_]] = TensorBoard.keys
}
