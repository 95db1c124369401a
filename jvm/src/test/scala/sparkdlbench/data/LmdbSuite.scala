package sparkdlbench.data

import org.lmdbjava.{DbiFlags, Env}
import org.scalatest.funsuite.AnyFunSuite

import java.io.ByteArrayOutputStream
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.file.{Files, Path}

class LmdbSuite extends AnyFunSuite with SourceFixture {
  import LmdbSuite._
  import SourceFixture._

  private val source = new Lmdb

  private def lmdb(name: String, values: Seq[Array[Byte]]): Path = environment(folder.resolve(name), values)

  private def pixels(id: Int, count: Int): Array[Byte] = Array.tabulate(count)(i => (id * 31 + i * 7).toByte)
  private def asFloats(bytes: Array[Byte]): Seq[Float] = bytes.toSeq.map(byte => (byte & 0xff) / 255f)

  test("small images in the pages, in the order of the keys") {
    val path = lmdb("small", (0 until 500).map(id => datum(1, 4, 5, pixels(id, 20), id % 10)))
    val (facts, sets) = load(source, "data.path" -> path.toString, "data.test_path" -> path.toString)
    assert((facts.trainRows, facts.shape, facts.classes) == ((500, Seq(1, 4, 5), 10)))
    assert(rows(sets.train) == (0 until 500).map(id => (id % 10, asFloats(pixels(id, 20)))))
    val (_, file) = load(source, "data.path" -> path.resolve("data.mdb").toString)
    assert(file.train.rows == 400)
  }

  test("images on pages of their own: CIFAR-10's size, and larger") {
    Seq(Seq(3, 32, 32) -> 120, Seq(3, 227, 227) -> 7).foreach { case (shape, count) =>
      val values = (0 until count).map(id => datum(shape.head, shape(1), shape(2), pixels(id, shape.product), id % 10))
      val path = lmdb(s"large${shape(1)}", values)
      val (facts, sets) = load(source, "data.path" -> path.toString, "data.test_path" -> path.toString)
      assert(facts.shape == shape && facts.trainRows == count)
      assert(rows(sets.train).zipWithIndex.forall { case (row, id) =>
        row == ((id % 10, asFloats(pixels(id, shape.product))))
      })
    }
  }

  test("fp32 values, and encoded images") {
    val floats = lmdb("floats", (0 until 4).map(id => floatDatum(1, 1, 3, Seq(id.toFloat, 0.5f, -1f), id)))
    val (facts, sets) = load(source, "data.path" -> floats.toString, "data.test_path" -> floats.toString)
    assert(facts.shape == Seq(1, 1, 3) && rows(sets.train).map(_._2.head) == Seq(0f, 1f, 2f, 3f))
    val image = new java.awt.image.BufferedImage(9, 9, java.awt.image.BufferedImage.TYPE_INT_RGB)
    val png = new ByteArrayOutputStream
    javax.imageio.ImageIO.write(image, "png", png)
    val encoded = lmdb("encoded", Seq.fill(3)(datum(3, 9, 9, png.toByteArray, 1) ++ varintField(7, 1)))
    val (pictures, _) =
      load(source, "data.path" -> encoded.toString, "data.test_path" -> encoded.toString, "data.shape" -> "3,4,4")
    assert(pictures.shape == Seq(3, 4, 4) && pictures.trainRows == 3)
    assertSays(refusal(source, "data.path" -> encoded.toString), "'data.shape' is 'auto'")
  }

  test("damaged files and odd entries are refused, with record and offset") {
    val good = (0 until 50).map(id => datum(1, 2, 2, pixels(id, 4), id % 10))
    assertSays(
      refusal(source, "data.path" -> lmdb("shapes", good :+ datum(1, 2, 3, pixels(0, 6), 0)).toString),
      "record 50",
      "1 × 2 × 3",
      "1 × 2 × 2"
    )
    assertSays(
      refusal(source, "data.path" -> lmdb("label", good :+ datum(1, 2, 2, pixels(0, 4), 11)).toString),
      "record 50",
      "label is 11"
    )
    assertSays(
      refusal(source, "data.path" -> lmdb("bytes", good :+ datum(1, 2, 2, pixels(0, 3), 1)).toString),
      "record 50",
      "has 3 bytes"
    )
    assertSays(
      refusal(source, "data.path" -> lmdb("proto", good :+ Array[Byte](0x22, 100, 1)).toString),
      "record 50",
      "truncated"
    )
    assertSays(refusal(source, "data.path" -> lmdb("empty", Nil).toString), "holds no entry")
    assertSays(refusal(source, "data.path" -> write("no.mdb", "hello").toString), "no.mdb", "truncated")
    assertSays(
      refusal(source, "data.path" -> write("zero.mdb", new Array[Byte](9000)).toString),
      "magic number 0x00000000",
      "0xbeefc0de"
    )
    val whole = Files.readAllBytes(
      lmdb("cut", good ++ (0 until 40).map(id => datum(3, 32, 32, pixels(id, 3072), 1)).take(0)).resolve("data.mdb")
    )
    assertSays(refusal(source, "data.path" -> write("cut.mdb", whole.take(8192)).toString), "truncated")
  }

  test("Datum: every field by hand, unknown ones passed over, lengths that lie") {
    // channels 1, height 2, width 2, data of 4 bytes, label 3, an unknown field 9, encoded false
    val bytes =
      Seq(0x08, 1, 0x10, 2, 0x18, 2, 0x22, 4, 9, 8, 7, 255, 0x28, 3, 0x4a, 1, 0, 0x38, 0).map(_.toByte).toArray
    val found = CaffeDatum.parse(bytes).fold(fail(_), identity)
    assert((found.channels, found.height, found.width, found.label, found.encoded) == ((1, 2, 2, 3, false)))
    assert(found.data.map(_ & 0xff).toSeq == Seq(9, 8, 7, 255))
    assert(CaffeDatum.parse(Seq(0x22, 0xff, 0xff, 0xff, 0xff, 0x07).map(_.toByte).toArray).isLeft)
    assert(CaffeDatum.parse(Array.fill[Byte](12)(-1)).isLeft)
    assert(
      CaffeDatum.parse(Seq(0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1).map(_.toByte).toArray).isLeft,
      "negative channels"
    )
    val packed = Seq(0x32, 8).map(_.toByte).toArray ++ float(1.5f) ++ float(-2f)
    assert(CaffeDatum.parse(packed).fold(fail(_), _.floats.toSeq) == Seq(1.5f, -2f))
  }
}

object LmdbSuite {

  /** Writes with the LMDB library itself, keys as Caffe's convert tools make them. */
  def environment(path: Path, values: Seq[Array[Byte]]): Path = {
    val env = Env.create().setMapSize(256L << 20).open(Files.createDirectories(path).toFile)
    val db = env.openDbi(null: String, DbiFlags.MDB_CREATE)
    val txn = env.txnWrite()
    values.zipWithIndex.foreach { case (value, id) => db.put(txn, direct(f"$id%08d".getBytes), direct(value)) }
    txn.commit()
    txn.close()
    env.close()
    path
  }

  private def direct(bytes: Array[Byte]): ByteBuffer = {
    val buffer = ByteBuffer.allocateDirect(math.max(1, bytes.length))
    buffer.put(bytes).flip()
    buffer
  }

  def varint(number: Long): Array[Byte] =
    if (number < 0x80) Array(number.toByte) else ((number & 0x7f) | 0x80).toByte +: varint(number >>> 7)
  def varintField(field: Int, number: Long): Array[Byte] = varint(field.toLong << 3) ++ varint(number)
  def float(value: Float): Array[Byte] = ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).putFloat(value).array

  def datum(channels: Int, height: Int, width: Int, data: Array[Byte], label: Int): Array[Byte] =
    varintField(1, channels.toLong) ++ varintField(2, height.toLong) ++ varintField(3, width.toLong) ++
      (varint((4 << 3) | 2) ++ varint(data.length.toLong) ++ data) ++ varintField(5, label.toLong)

  def floatDatum(channels: Int, height: Int, width: Int, values: Seq[Float], label: Int): Array[Byte] =
    datum(channels, height, width, Array.emptyByteArray, label) ++ values.flatMap(value =>
      varint((6 << 3) | 5) ++ float(value)
    )
}
