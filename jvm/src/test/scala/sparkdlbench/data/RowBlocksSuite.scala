package sparkdlbench.data

import org.scalatest.funsuite.AnyFunSuite

import java.io.ByteArrayInputStream
import java.nio.file.Files
import java.nio.{ByteBuffer, ByteOrder}
import sparkdlbench.common.ConfigurationException

class RowBlocksSuite extends AnyFunSuite {
  private def read(store: RowStore, ids: Int*): (Seq[Float], Seq[Long]) = {
    val batch = new BatchReader(store, ids.size).read(ids.toArray, 0, ids.size)
    (
      ids.indices.flatMap(row => (0 until store.width).map(i => batch.features.get(row * store.width + i))),
      ids.indices.map(row => batch.labels.get(row))
    )
  }

  test("rows of bytes are found across blocks, and a row that is not there is refused") {
    val blocks = RowBlocks.onHeap(5, 2, shift = 1)
    Seq(Seq(0, 1), Seq(2, 3), Seq(4, 5), Seq(6, 7), Seq(8, 255)).zipWithIndex.foreach { case (row, id) =>
      blocks.write(id, row.map(_.toByte).toArray)
    }
    val store = new HeldRowStore(blocks, ValueKind.UInt8, Array(0, 1, 2, 3, 200), 1)
    assert(read(store, 4, 0, 3, 1, 2) == ((Seq(8f, 255f, 0f, 1f, 6f, 7f, 2f, 3f, 4f, 5f), Seq(200L, 0L, 3L, 1L, 2L))))
    intercept[IndexOutOfBoundsException](read(store, 5))
    intercept[IndexOutOfBoundsException](read(store, -1))
  }

  test("rows of fp32, scaled") {
    val blocks = RowBlocks.onHeap(2, 8)
    Seq(1.5f, -2f, Float.MinPositiveValue, 4f).grouped(2).zipWithIndex.foreach { case (row, id) =>
      val bytes = ByteBuffer.allocate(8).order(ByteOrder.LITTLE_ENDIAN)
      row.foreach(value => bytes.putFloat(value))
      blocks.write(id, bytes.array)
    }
    assert(
      read(new HeldRowStore(blocks, ValueKind.Float32, Array(7, 8), 1), 1, 0) == ((
        Seq(Float.MinPositiveValue, 4f, 1.5f, -2f),
        Seq(8L, 7L)
      ))
    )
    assert(read(new HeldRowStore(blocks, ValueKind.Float32, Array(7, 8), 2), 0)._1 == Seq(3f, -4f))
  }

  test("a stream fills blocks on the heap and in a file alike, and its end is seen") {
    val folder = Files.createTempDirectory("rows")
    val content = Array.tabulate[Byte](300 * 7)(i => (i * 31).toByte)
    Seq(RowBlocks.onHeap(300, 7, shift = 4), RowBlocks.inFile(300, 7, folder)).foreach { blocks =>
      assert(blocks.fill(new ByteArrayInputStream(content), 0, 100) == 700)
      assert(blocks.fill(new ByteArrayInputStream(content.drop(700)), 100, 200) == 1400)
      val row = new Array[Byte](7)
      (0 until 300).foreach { id =>
        blocks.read(id, row)
        assert(row.toSeq == content.slice(id * 7, id * 7 + 7).toSeq, s"row $id")
      }
      assert(blocks.fill(new ByteArrayInputStream(content.take(20)), 0, 100) == 20)
      assert(blocks.fillSome(new ByteArrayInputStream(content), 0, 300, _ % 3 == 1) == 2100)
      (0 until 100).foreach { place =>
        blocks.read(place, row)
        assert(row.toSeq == content.slice(place * 21 + 7, place * 21 + 14).toSeq, s"row ${place * 3 + 1}")
      }
      assert(blocks.fillSome(new ByteArrayInputStream(content.take(20)), 0, 100, _ % 3 == 1) == 20)
    }
    assert(Files.list(folder).count() == 0, "the mapped file keeps no name")
    Files.delete(folder)
  }

  test("a file that the disk has no room for is refused, and leaves nothing") {
    val folder = Files.createTempDirectory("rows")
    val message =
      intercept[ConfigurationException](RowBlocks.inFile(Int.MaxValue, 1 << 30, folder)).getMessage
    assert(message.contains(folder.toString) && message.contains("data.memory_limit"), message)
    assert(Files.list(folder).count() == 0)
    Files.delete(folder)
  }

  test("blocks stay under the limit of a buffer") {
    Seq(1, 784, 3072, 200000000).foreach(bytes =>
      assert((bytes.toLong << RowBlocks.blockShift(bytes)) <= Int.MaxValue.toLong, bytes)
    )
  }
}
