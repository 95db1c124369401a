package sparkdlbench.data

import org.scalatest.funsuite.AnyFunSuite

class ByteRowStoreSuite extends AnyFunSuite {
  test("rows are found across blocks") {
    val blocks = Array(Array[Byte](0, 1, 2, 3), Array[Byte](4, 5, 6, 7), Array[Byte](8, -1))
    val store = new ByteRowStore(5, 2, blocks, 1, Array[Byte](0, 1, 2, 3, -56), 1)
    val batch = new BatchReader(store, 5).read(Array(4, 0, 3, 1, 2), 0, 5)
    assert((0 until 10).map(i => batch.features.get(i)) == Seq(8f, 255f, 0f, 1f, 6f, 7f, 2f, 3f, 4f, 5f))
    assert((0 until 5).map(i => batch.labels.get(i)) == Seq(200, 0, 3, 1, 2))
    intercept[IndexOutOfBoundsException](store.readAll(Array(5), 0, 1, batch.features, batch.labels))
    intercept[IndexOutOfBoundsException](store.readAll(Array(-1), 0, 1, batch.features, batch.labels))
  }

  test("blocks hold all rows and stay under the limit of an array") {
    Seq((1, 784), (60000, 784), (200000, 784), (3, 200000000 / 8)).foreach { case (rows, width) =>
      val blocks = ByteRowStore.allocate(rows, width)
      assert(blocks.map(_.length.toLong).sum == rows.toLong * width)
      assert(blocks.init.forall(_.length == width << ByteRowStore.blockShift(width)))
    }
  }
}
