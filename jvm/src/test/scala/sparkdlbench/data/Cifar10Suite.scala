package sparkdlbench.data

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.TestData

class Cifar10Suite extends AnyFunSuite with SourceFixture {
  import SourceFixture._

  private val source = new Cifar10

  /** Row `id` has the label id mod 10 and values that its id and their place make. */
  private def batch(first: Int, rows: Int): Array[Byte] =
    (first until first + rows).flatMap(id => (id % 10).toByte +: Array.tabulate(3072)(i => pixel(id, i).toByte)).toArray
  private def pixel(id: Int, place: Int): Int = (id * 37 + place * 11) & 0xff

  private def good(name: String): String = {
    (1 to 5).foreach(number => write(s"$name/data_batch_$number.bin", batch((number - 1) * 4, 4)))
    write(s"$name/test_batch.bin", batch(100, 3))
    folder.resolve(name).toString
  }

  private def assertReads(path: String): Unit = {
    val (facts, sets) = load(source, "data.path" -> path)
    assert((facts.trainRows, facts.testRows, facts.shape, facts.classes) == ((20, 3, Seq(3, 32, 32), 10)))
    Seq(sets.train -> 0, sets.test -> 100).foreach { case (store, first) =>
      rows(store).zipWithIndex.foreach { case ((label, values), row) =>
        assert(label == (first + row) % 10)
        assert(values == (0 until 3072).map(i => pixel(first + row, i) / 255f), s"row $row")
      }
    }
  }

  test("batches are read as they are, with gzip and with xz, in the order of the files") {
    val plain = good("plain")
    assertReads(plain)
    Seq[(String, Array[Byte] => Array[Byte])]("gz" -> gzip _, "xz" -> xz _).foreach { case (suffix, pack) =>
      (1 to 5).foreach(n => write(s"packed-$suffix/data_batch_$n.bin.$suffix", pack(batch((n - 1) * 4, 4))))
      write(s"packed-$suffix/test_batch.bin.$suffix", pack(batch(100, 3)))
      assertReads(folder.resolve(s"packed-$suffix").toString)
    }
  }

  test("a set that was decoded is not decoded again, and one whose files changed is") {
    val path = good("again")
    def decoded =
      source.prepare(source.qualified(settings(source, Seq("data.path" -> path)), hadoop), sc)(RecordSource.decodedDir)
    val first = decoded
    assert(decoded == first)
    write("again/data_batch_1.bin", batch(0, 5))
    assert(decoded != first)
  }

  test("missing, truncated, damaged and mislabelled files are refused, with file, record and offset") {
    val path = good("bad")
    val first = folder.resolve("bad/data_batch_1.bin")
    def with1(content: Array[Byte]): String = {
      write("bad/data_batch_1.bin", content); refusal(source, "data.path" -> path)
    }
    assertSays(
      with1(batch(0, 4).dropRight(1)),
      first.getFileName.toString,
      "record 3",
      "offset 9219",
      "3072 of its 3073 bytes"
    )
    assertSays(with1(Array.empty), "data_batch_1.bin", "is empty")
    assertSays(with1(Array[Byte](10) ++ batch(0, 1).drop(1)), "record 0", "label is 10", "0 to 9")
    assertSays(with1(xz(batch(0, 4)).dropRight(40)), "data_batch_1.bin", "truncated or damaged")
    assertSays(with1(gzip(batch(0, 4)).dropRight(40)), "data_batch_1.bin", "truncated or damaged")
    assertSays(with1(xz(batch(0, 4)).patch(30, Seq[Byte](1, 2, 3), 3)), "data_batch_1.bin", "truncated or damaged")
    assertSays(refusal(source, "data.path" -> folder.resolve("nowhere").toString), "nowhere", "no file")
    assertSays(
      refusal(source, "data.path" -> write("only/test_batch.bin", batch(0, 1)).getParent.toString),
      "lacks data_batch_1.bin"
    )
  }

  test("bad records can be left out: counted, listed, and limited") {
    good("skip")
    write(
      "skip/data_batch_2.bin",
      batch(4, 1) ++ Array[Byte](77) ++ batch(5, 1).drop(1) ++ batch(6, 1) ++ Array[Byte](1, 2)
    )
    val path = Seq("data.path" -> folder.resolve("skip").toString, "data.on_error" -> "skip")
    val (facts, sets) = load(source, path: _*)
    assert(facts.trainRows == 18 && facts.skipped.count == 2)
    assertSays(facts.skipped.listed.mkString(" "), "data_batch_2.bin", "record 1", "the label is 77", "record 3")
    assert(rows(sets.train).map(_._1).slice(4, 6) == Seq(4, 6))
    assertSays(
      refusal(source, path :+ ("data.max_skipped" -> "1"): _*),
      "2 bad records",
      "data.max_skipped",
      "label is 77"
    )
  }

  test("the whole of CIFAR-10: counts of classes, first row, mean image") {
    val shared = TestData.require("cifar-10")
    val one = folder.resolve("real")
    java.nio.file.Files.createDirectory(one)
    // One training batch: unpacking all six takes half a minute.
    Seq("data_batch_1.bin.xz", "test_batch.bin.xz").foreach { name =>
      java.nio.file.Files.createSymbolicLink(one.resolve(name), shared.resolve(name))
    }
    val (facts, sets) = load(source, "data.path" -> one.toString, "data.scale" -> "1", "data.normalize" -> "mean")
    assert((facts.trainRows, facts.testRows) == ((10000, 10000)))
    val test = new BatchReader(sets.test, 10000).readRange(0, 10000)
    assert((0 until 10000).map(row => test.labels.get(row)).groupBy(identity).map(_._2.size).toSet == Set(1000))
    assert(test.labels.get(0) == 3, "the first test image is a cat")
    val train = new BatchReader(sets.train, 10000).readRange(0, 10000)
    assert(train.labels.get(0) == 6, "the first training image is a frog")
    Seq(0, 1500, 3071).foreach { place =>
      val mean = (0 until 10000).map(row => train.features.get(row * 3072 + place).toDouble).sum / 10000
      assert(math.abs(mean) < 1e-3, s"the mean image is subtracted: $mean")
    }
  }
}
