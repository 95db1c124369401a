package sparkdlbench.results

import org.scalatest.funsuite.AnyFunSuite

import java.nio.file.Files
import java.nio.{ByteBuffer, ByteOrder}
import scala.jdk.CollectionConverters._
import sparkdlbench.common.ConfigurationException

class TensorBoardSuite extends AnyFunSuite {

  test("the checksum is TensorFlow's masked CRC-32C") {
    // crc32c::Mask(crc32c::Value("foo", 3)) of LevelDB's and TensorFlow's formula, from CRC-32C("foo") = 0xcfc4ae1d.
    val crc = 0xcfc4ae1d
    val masked = ((crc >>> 15) | (crc << 17)) + 0xa282ead8
    val found = ByteBuffer.wrap(TensorBoard.checksum("foo".getBytes("US-ASCII"))).order(ByteOrder.LITTLE_ENDIAN).getInt
    assert(found == masked)
  }

  test("an event file holds its version and the scalars, whole at any time") {
    val folder = Files.createTempDirectory("tensorboard")
    val board = TensorBoard.create(folder.toString, "my-run")
    board.scalar("accuracy/test", 3, 0.5)
    board.scalar("loss/test", 3, Double.NaN) // nothing
    val file = Files.list(folder.resolve("my-run")).iterator.asScala.toSeq.head // not closed yet
    assert(file.getFileName.toString.startsWith("events.out.tfevents."))
    val records = EventFile.records(file)
    board.close()
    assert(records.size == 2)
    assert(new String(records.head, "ISO-8859-1").contains("brain.Event:2"))
    val scalar = records(1)
    assert(scalar.head == 0x09) // field 1, eight bytes: the time
    // Field 2, the step; field 5, the summary: one value with tag and number.
    val tag = "accuracy/test"
    val expected =
      Array[Byte](0x10, 3, 0x2a, (tag.length + 9).toByte, 0x0a, (tag.length + 7).toByte, 0x0a, tag.length.toByte) ++
        tag.getBytes("US-ASCII") ++ Array[Byte](0x15) ++ ByteBuffer
          .allocate(4)
          .order(ByteOrder.LITTLE_ENDIAN)
          .putFloat(0.5f)
          .array()
    assert(scalar.drop(9).toSeq == expected.toSeq)
  }

  test("a folder that cannot be made is the user's to correct") {
    val file = Files.createTempFile("not", "folder")
    val message = intercept[ConfigurationException](TensorBoard.create(file.resolve("below").toString, "x")).getMessage
    assert(message.contains(file.toString) && message.contains("tensorboard.dir"))
  }
}
