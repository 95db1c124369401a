package sparkdlbench.data

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.TestData

import java.awt.image.BufferedImage
import java.io.ByteArrayOutputStream
import java.nio.file.{Files, Path}
import javax.imageio.ImageIO
import scala.jdk.CollectionConverters._

class ImagesSuite extends AnyFunSuite with SourceFixture {
  import SourceFixture._

  private val source = new Images

  private def encoded(image: BufferedImage, format: String): Array[Byte] = {
    val memory = new ByteArrayOutputStream
    assert(ImageIO.write(image, format, memory))
    memory.toByteArray
  }

  private def painted(width: Int, height: Int, kind: Int)(colour: (Int, Int) => Int): BufferedImage = {
    val image = new BufferedImage(width, height, kind)
    for (y <- 0 until height; x <- 0 until width) image.setRGB(x, y, colour(x, y))
    image
  }

  private def rgb(x: Int, y: Int): Int = (x * 40 << 16) | (y * 50 << 8) | ((x + y) * 20)

  private def decoded(content: Array[Byte], shape: Int*): Seq[Int] =
    new ImageDecoder(shape).decode(content).fold(reason => fail(reason), _.toSeq.map(_ & 0xff))

  test("a PNG of the right size comes as it is, channels first; with alpha, in a palette and grey too") {
    val wanted = (for (y <- 0 until 4; x <- 0 until 6) yield rgb(x, y)).map(_ & 0xffffff)
    val planes = Seq(16, 8, 0).flatMap(shift => wanted.map(colour => (colour >> shift) & 0xff))
    Seq(BufferedImage.TYPE_3BYTE_BGR, BufferedImage.TYPE_INT_RGB).foreach { kind =>
      assert(decoded(encoded(painted(6, 4, kind)(rgb), "png"), 3, 4, 6) == planes)
    }
    val alpha = painted(6, 4, BufferedImage.TYPE_INT_ARGB)((x, y) => rgb(x, y) | 0xff000000)
    assert(decoded(encoded(alpha, "png"), 3, 4, 6) == planes)
    val palette = painted(6, 4, BufferedImage.TYPE_BYTE_INDEXED)((x, _) => if (x < 3) 0xff0000 else 0x0000ff)
    assert(decoded(encoded(palette, "png"), 3, 4, 6).take(6) == Seq(255, 255, 255, 0, 0, 0))
    val grey = new BufferedImage(6, 4, BufferedImage.TYPE_BYTE_GRAY)
    for (y <- 0 until 4; x <- 0 until 6) grey.getRaster.setSample(x, y, 0, 10 * x + y)
    val samples = for (y <- 0 until 4; x <- 0 until 6) yield 10 * x + y
    assert(decoded(encoded(grey, "png"), 1, 4, 6) == samples, "grey samples are not brightened")
    assert(decoded(encoded(grey, "png"), 3, 4, 6) == samples ++ samples ++ samples)
    val luma = wanted.map(c => math.round(0.299f * (c >> 16) + 0.587f * ((c >> 8) & 0xff) + 0.114f * (c & 0xff)))
    assert(decoded(encoded(painted(6, 4, BufferedImage.TYPE_INT_RGB)(rgb), "png"), 1, 4, 6) == luma)
  }

  test("resizing keeps an even image even, halves by the triangle filter and keeps the mean") {
    val even = encoded(painted(50, 37, BufferedImage.TYPE_INT_RGB)((_, _) => 0x336699), "png")
    assert(decoded(even, 3, 8, 8).distinct.toSet == Set(0x33, 0x66, 0x99))
    assert(decoded(even, 3, 100, 90).distinct.toSet == Set(0x33, 0x66, 0x99))
    // Triangle filter of radius 2 at half size: weights 1/8, 3/8, 3/8, 1/8 inside the image.
    val step = encoded(painted(8, 1, BufferedImage.TYPE_INT_RGB)((x, _) => if (x < 4) 0 else 0x505050), "png")
    assert(decoded(step, 1, 1, 4) == Seq(0, 10, 70, 80))
    val noise =
      encoded(painted(64, 64, BufferedImage.TYPE_INT_RGB)((x, y) => 0x010101 * ((x * 97 + y * 61) % 256)), "png")
    val small = decoded(noise, 1, 16, 16)
    assert(math.abs(small.sum / 256.0 - decoded(noise, 1, 64, 64).sum / 4096.0) < 2)
  }

  test("a folder a class: labels, order, resize, another folder to test on") {
    Seq("dog", "cat").zipWithIndex.foreach { case (name, number) =>
      (0 until 6).foreach { i =>
        val image = painted(5 + i, 7, BufferedImage.TYPE_INT_RGB)((_, _) => 0x010101 * (100 * number + i))
        write(s"pets/$name/$i.png", encoded(image, "png"))
      }
    }
    write("pets-test/cat/x.jpg", encoded(painted(9, 9, BufferedImage.TYPE_INT_RGB)((_, _) => 0x808080), "jpg"))
    val base = Seq("data.path" -> folder.resolve("pets").toString, "data.shape" -> "1,4,4", "data.scale" -> "1")
    val (facts, sets) = load(source, base :+ ("data.test_path" -> folder.resolve("pets-test").toString): _*)
    assert((facts.trainRows, facts.testRows, facts.classes, facts.shape) == ((12, 1, 2, Seq(1, 4, 4))))
    val wanted = Seq((0, 100), (1, 0)).flatMap { case (label, from) =>
      (0 until 6).map(i => (label, Seq.fill(16)((from + i).toFloat)))
    }
    assert(rows(sets.train) == wanted)
    assert(rows(sets.test) == Seq((0, Seq.fill(16)(128f))))
    val (_, renamed) = load(source, base ++ Seq("data.label_names" -> "dog,cat", "data.split_bytes" -> "1024"): _*)
    assert((rows(renamed.train) ++ rows(renamed.test)).map(_._1).count(_ == 0) == 6)
    assertSays(refusal(source, base :+ ("data.label_names" -> "dog"): _*), "'cat'", "data.label_names")
    assertSays(refusal(source, "data.path" -> folder.resolve("pets").toString), "'data.shape' is 'auto'")
    assertSays(
      refusal(source, base :+ ("data.test_path" -> folder.resolve("nothing").toString): _*),
      "nothing",
      "does not exist"
    )
  }

  test("bad images are named; or left out and counted") {
    val good = encoded(painted(8, 8, BufferedImage.TYPE_INT_RGB)(rgb), "png")
    Seq("a/1.png", "b/1.png", "b/2.png", "b/4.png").foreach(name => write(s"bad/$name", good))
    write("bad/b/3.png", good.take(good.length / 2))
    write("bad/a/note.txt", "hello")
    val base = Seq("data.path" -> folder.resolve("bad").toString, "data.shape" -> "3,8,8")
    assertSays(refusal(source, base: _*), "note.txt", "neither JPEG nor PNG", "68 65 6c 6c")
    val (facts, _) = load(source, base ++ Seq("data.on_error" -> "skip", "data.test_every" -> "2"): _*)
    assert((facts.trainRows + facts.testRows, facts.skipped.count) == ((4, 2L)))
    assertSays(facts.skipped.listed.mkString(" "), "note.txt", "3.png", "damaged png")
  }

  private def jpegs(name: String): Seq[(String, Array[Byte])] = {
    val files: Seq[Path] = Files.list(TestData.require("bad-input-images").resolve(name)).iterator.asScala.toSeq
    assert(files.size >= 10)
    files.sortBy(_.toString).map(path => path.getFileName.toString -> Files.readAllBytes(path))
  }

  test("a JPEG that ends in the middle is bad, though its reader would make up the rest") {
    val whole = encoded(painted(64, 64, BufferedImage.TYPE_INT_RGB)((x, y) => rgb(x % 7, y % 5)), "jpg")
    decoded(whole, 3, 64, 64)
    for (part <- Seq(0.3, 0.5, 0.8)) {
      val cut = new ImageDecoder(Seq(3, 64, 64)).decode(whole.take((whole.length * part).toInt))
      assert(cut.left.exists(_.contains("jpeg")), s"$part of it: $cut")
    }
  }

  test("malformed JPEGs never do worse than an error") {
    val found = jpegs("malformed").map { case (name, content) =>
      name -> new ImageDecoder(Seq(3, 16, 16)).decode(content)
    }.toMap
    Seq(
      "empty.jpg" -> "is empty",
      "max_size.jpg" -> "pixels",
      "missing-sof.jpg" -> "damaged",
      "missing-sos.jpg" -> "damaged"
    ).foreach { case (name, reason) =>
      assert(found(name).left.exists(_.contains(reason)), s"$name: ${found(name)}")
    }
    assert(found.values.count(_.isLeft) >= 6)
    found.values.flatMap(_.toOption).foreach(row => assert(row.length == 768))
  }

  test("odd but valid JPEGs are all read, CMYK among them") {
    val found = jpegs("odd-but-valid").map { case (name, content) =>
      name -> new ImageDecoder(Seq(3, 16, 16)).decode(content)
    }.toMap
    found.foreach { case (name, row) => assert(row.isRight, s"$name: $row") }
    assert(found("mozilla-jpg-cmyk-1.jpg").toOption.get.toSet.size > 1)
  }

  test("JPEGs of CIFAR-10's first images are near the originals") {
    val jpeg = jpegs("cifar10-jpeg").toMap.apply("frog-0000.jpg")
    val batch = TestData.require("cifar-10").resolve("data_batch_1.bin.xz")
    val stream = new org.tukaani.xz.XZInputStream(Files.newInputStream(batch))
    val record =
      try stream.readNBytes(3073)
      finally stream.close()
    assert(record(0) == 6)
    val apart = decoded(jpeg, 3, 32, 32).zip(record.drop(1).map(_ & 0xff)).map { case (a, b) => math.abs(a - b) }
    assert(apart.sum / 3072.0 < 8, s"mean difference ${apart.sum / 3072.0}")
  }
}
