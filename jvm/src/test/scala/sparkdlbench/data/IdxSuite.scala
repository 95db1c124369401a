package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.TestData
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{RunKeys, Settings}

import java.io.{ByteArrayOutputStream, DataOutputStream}
import java.nio.file.{Files, Path}
import java.util.zip.GZIPOutputStream

class IdxSuite extends AnyFunSuite {
  private val source = new Idx
  private val hadoop = new Configuration(false)
  private val TrainImages = "train-images-idx3-ubyte"
  private val TrainLabels = "train-labels-idx1-ubyte"
  private val TestImages = "t10k-images-idx3-ubyte"
  private val TestLabels = "t10k-labels-idx1-ubyte"

  private def settings(path: String, more: (String, String)*): Settings =
    Settings.resolve(Map("data.path" -> path) ++ more, RunKeys.own ++ source.keys)

  private def images(count: Int, height: Int, width: Int, magic: Int = 0x803): Array[Byte] =
    bytes(Seq(magic, count, height, width), Array.tabulate(count * height * width)(i => (i * 7).toByte))

  private def labels(values: Seq[Int], magic: Int = 0x801): Array[Byte] =
    bytes(Seq(magic, values.length), values.map(_.toByte).toArray)

  private def bytes(header: Seq[Int], content: Array[Byte]): Array[Byte] = {
    val memory = new ByteArrayOutputStream
    val data = new DataOutputStream(memory)
    header.foreach(number => data.writeInt(number))
    data.write(content)
    memory.toByteArray
  }

  private def gzip(content: Array[Byte]): Array[Byte] = {
    val memory = new ByteArrayOutputStream
    val stream = new GZIPOutputStream(memory)
    stream.write(content)
    stream.close()
    memory.toByteArray
  }

  private val good: Map[String, Array[Byte]] = Map(
    TrainImages -> images(20, 5, 3),
    TrainLabels -> labels((0 until 20).map(_ % 10)),
    TestImages -> images(6, 5, 3),
    TestLabels -> labels(Seq(9, 8, 7, 6, 5, 4))
  )

  private def withFolder[T](files: Map[String, Array[Byte]])(use: Path => T): T = {
    val folder = Files.createTempDirectory("idx folder")
    try {
      files.foreach { case (name, content) => Files.write(folder.resolve(name), content) }
      use(folder)
    } finally {
      folder.toFile.listFiles.foreach(file => file.delete())
      Files.delete(folder)
    }
  }

  /** The message with which `inspect` refuses the files; `open` must refuse them too. */
  private def refusal(files: Map[String, Array[Byte]], more: (String, String)*): String = withFolder(files) { folder =>
    val set = settings(folder.toString, more: _*)
    intercept[ConfigurationException](source.open(set, hadoop))
    val message = intercept[ConfigurationException](source.inspect(set, hadoop)).getMessage
    assert(message.contains(folder.getFileName.toString) && !message.contains('\n'), message)
    message
  }

  private def assertSays(message: String, parts: String*): Unit =
    parts.foreach(part => assert(message.contains(part), s"'$part' is not in: $message"))

  private def assertReadsGoodSet(path: String, more: (String, String)*): Unit = {
    val set = settings(path, more: _*)
    val facts = source.inspect(set, hadoop)
    assert((facts.trainRows, facts.testRows, facts.shape, facts.classes) == ((20, 6, Seq(1, 5, 3), 10)))
    val sets = source.open(set, hadoop)
    val batch = new BatchReader(sets.train, 3).read(Array(19, 0, 4), 0, 3)
    assert((0 until 3).map(row => batch.labels.get(row)) == Seq(9, 0, 4))
    val wanted = Seq(19, 0, 4).flatMap(row => (0 until 15).map(column => (((row * 15 + column) * 7) & 0xff) / 255f))
    assert((0 until 45).map(i => batch.features.get(i)) == wanted)
    val test = new BatchReader(sets.test, 6).readRange(0, 6)
    assert((0 until 6).map(row => test.labels.get(row)) == Seq(9, 8, 7, 6, 5, 4))
  }

  test("plain files are read by path and by file: URI, also from a folder with a blank in its name") {
    withFolder(good) { folder =>
      assertReadsGoodSet(folder.toString)
      assertReadsGoodSet("file:" + folder.toString)
      assertReadsGoodSet("file://" + folder.toString + "/")
    }
  }

  test("compressed files are read, also with a name that says otherwise, and mixed with plain ones") {
    withFolder(good.map { case (name, content) => s"$name.gz" -> gzip(content) })(folder =>
      assertReadsGoodSet(folder.toString)
    )
    withFolder(good.map { case (name, content) => name -> gzip(content) })(folder =>
      assertReadsGoodSet(folder.toString)
    )
    withFolder(good - TestImages + (s"$TestImages.gz" -> good(TestImages)))(folder =>
      assertReadsGoodSet(folder.toString)
    )
  }

  test("paths are made complete for executors that run in other folders") {
    withFolder(good) { folder =>
      val relative = java.nio.file.Paths.get("").toAbsolutePath.relativize(folder).toString
      val qualified = source.qualified(settings(relative), hadoop)(DataKeys.path)
      assert(qualified.startsWith("file:/") && qualified.endsWith(folder.getFileName.toString))
      assertReadsGoodSet(qualified)
    }
  }

  test("features are bytes × data.scale; by default exactly byte / 255") {
    withFolder(good) { folder =>
      val sets = source.open(settings(folder.toString, "data.scale" -> "2"), hadoop)
      assert(new BatchReader(sets.train, 1).readRange(0, 1).features.get(3) == 42f)
    }
    val scaled = Array.tabulate(256)(value => (value * 0.00392156862745098).toFloat)
    (0 to 255).foreach(value => assert(scaled(value) == value / 255f))
  }

  test("no path, no folder, no file system") {
    def message(path: String) = intercept[ConfigurationException](source.inspect(settings(path), hadoop)).getMessage
    assertSays(message(""), "'data.path' is not set", "--set data.path")
    assertSays(message("/no/such/folder"), "/no/such/folder", "does not exist")
    assertSays(message("nosuch://host/folder"), "nosuch://host/folder", "file:, hdfs:")
    assertSays(message("file:bad:name"), "file:bad:name")
    withFolder(good)(folder => assertSays(message(folder.resolve(TrainImages).toString), "is not a folder"))
  }

  test("a missing file is named, and what is there") {
    assertSays(refusal(good - TestLabels), TestLabels, s"'$TestLabels.gz'", TrainImages, "data.path")
    assertSays(refusal(Map.empty), "no files")
  }

  test("truncated files: plain and compressed, in the header and in the content") {
    good.keys.foreach { name =>
      val whole = good(name)
      Seq(0, 3, 7, whole.length - 1).foreach { length =>
        assertSays(refusal(good + (name -> whole.take(length))), name, "is truncated")
        assertSays(refusal(good + (name -> gzip(whole.take(length)))), name, "is truncated")
      }
      val packed = gzip(whole)
      Seq(2, 9, 15, packed.length - 9, packed.length - 1).foreach { length =>
        assertSays(refusal(good + (name -> packed.take(length))), name, "is truncated")
      }
    }
    assertSays(refusal(good + (TrainImages -> good(TrainImages).dropRight(1))), "315 bytes", "316")
  }

  test("damaged gzip content is found, by its checksum too") {
    val packed = gzip(good(TrainImages))
    val wrongChecksum = packed.clone()
    wrongChecksum(packed.length - 6) = (packed(packed.length - 6) ^ 1).toByte
    assertSays(refusal(good + (TrainImages -> wrongChecksum)), TrainImages, "is a damaged gzip file")
    val wrongMethod = packed.clone()
    wrongMethod(2) = 7
    assertSays(refusal(good + (TrainImages -> wrongMethod)), TrainImages, "is a damaged gzip file")
    val wrongBlock = packed.clone()
    wrongBlock(10) = 0xff.toByte
    assertSays(refusal(good + (TrainImages -> wrongBlock)), TrainImages, "is a damaged gzip file")
  }

  test("longer files than the header says") {
    good.keys.foreach { name =>
      assertSays(refusal(good + (name -> (good(name) :+ 0.toByte))), name, "longer than its header says")
      assertSays(refusal(good + (name -> gzip(good(name) :+ 0.toByte))), name, "longer than its header says")
    }
  }

  test("wrong magic numbers are shown beside the right ones") {
    assertSays(
      refusal(good + (TrainImages -> images(20, 5, 3, magic = 0x0d03))),
      TrainImages,
      "0x00000d03",
      "0x00000803"
    )
    assertSays(
      refusal(good + (TestLabels -> good(TestImages))),
      TestLabels,
      "0x00000803 (that of images)",
      "0x00000801"
    )
    assertSays(
      refusal(good + (TestImages -> good(TestLabels))),
      TestImages,
      "0x00000801 (that of labels)",
      "0x00000803"
    )
  }

  test("impossible counts and sizes in a header") {
    Seq(
      images(0, 5, 3),
      bytes(Seq(0x803, -1, 5, 3), Array.empty),
      images(20, 0, 3),
      bytes(Seq(0x803, 20, 65536, 65536), Array.empty)
    )
      .foreach(content =>
        assertSays(refusal(good + (TrainImages -> content)), TrainImages, "valid are 1 or more images")
      )
    assertSays(refusal(good + (TrainLabels -> labels(Nil))), TrainLabels, "0 labels")
    assertSays(refusal(good + (TrainLabels -> bytes(Seq(0x801, Int.MaxValue), Array(1)))), TrainLabels, "is truncated")
    assertSays(refusal(good + (TrainImages -> bytes(Seq(0x803, Int.MaxValue, 28, 28), Array(1)))), TrainImages)
  }

  test("a small compressed file of many labels takes no memory for them") {
    val lying = gzip(bytes(Seq(0x801, Int.MaxValue), Array.fill(20)(1.toByte)))
    assertSays(refusal(good + (TrainLabels -> lying)), TrainLabels, s"${Int.MaxValue} labels", "cannot hold so many")
    assertSays(
      refusal(good + (TrainLabels -> lying), "data.on_error" -> "skip"),
      TrainLabels,
      s"${lying.length} bytes of gzip",
      "cannot hold so many"
    )
    val many = 20 << 20
    val bomb = gzip(bytes(Seq(0x801, many), new Array[Byte](many)))
    assert(bomb.length < many / 500)
    assertSays(refusal(good + (TrainLabels -> bomb)), TrainLabels, s"$many labels", "20 images")
    withFolder(good + (TrainLabels -> bomb)) { folder =>
      val set = settings(folder.toString, "data.on_error" -> "skip", "data.max_skipped" -> Int.MaxValue.toString)
      val before = allocated()
      val facts = source.inspect(set, hadoop)
      assert(allocated() - before < many / 2, "no more labels are held than there are images")
      assert((facts.trainRows, facts.skipped.count) == ((20, many - 20L)))
      assert(SourceFixture.rows(source.open(set, hadoop).train).map(_._1) == Seq.fill(20)(0))
    }
  }

  /** Bytes of heap that this thread has taken so far. */
  private def allocated(): Long = {
    val threads = java.lang.management.ManagementFactory.getThreadMXBean
    threads.asInstanceOf[com.sun.management.ThreadMXBean].getThreadAllocatedBytes(Thread.currentThread.getId)
  }

  test("counts that differ, labels outside the classes, test images of another size") {
    assertSays(
      refusal(good + (TrainLabels -> labels(Seq.fill(19)(1)))),
      "20 images",
      "19 labels",
      TrainImages,
      TrainLabels
    )
    assertSays(
      refusal(good + (TestLabels -> labels(Seq(0, 1, 2, 10, 4, 255)))),
      TestLabels,
      "label 10 in row 3 (byte offset 11)",
      "0 to 9",
      "largest label is 255"
    )
    assertSays(refusal(good, "data.classes" -> "8"), "label 8 in row 8", "0 to 7")
    withFolder(good + (TestImages -> images(6, 3, 5))) { folder =>
      val message = intercept[ConfigurationException](source.inspect(settings(folder.toString), hadoop)).getMessage
      assertSays(message, "5 × 3", "3 × 5", "same")
    }
  }

  test("a label that is left out is told with its place in the file") {
    withFolder(good + (TestLabels -> labels(Seq(0, 1, 2, 10, 4, 255)))) { folder =>
      val facts = source.inspect(settings(folder.toString, "data.on_error" -> "skip"), hadoop)
      assert((facts.testRows, facts.skipped.count) == ((4, 2L)))
      assertSays(
        facts.skipped.listed.mkString(" "),
        TestLabels,
        "record 3, byte offset 11: the label is 10",
        "byte offset 13"
      )
    }
  }

  test("of a share of the training rows those alone are held, whatever is compressed or left out") {
    val compressed = good.map { case (name, content) => name -> gzip(content) }
    val damaged = good + (TrainLabels -> labels((0 until 20).map(id => if (id % 7 == 3) 99 else id % 10)))
    for (files <- Seq(good, compressed, damaged); mapped <- Seq("0", "1"))
      withFolder(files) { folder =>
        val base = Seq("data.on_error" -> "skip", "data.memory_limit" -> mapped)
        val whole = source.open(settings(folder.toString, base: _*), hadoop)
        val half = settings(folder.toString, base :+ ("data.share" -> "0.5"): _*)
        val (facts, some) = (source.inspect(half, hadoop), source.open(half, hadoop))
        val (all, taken) = (SourceFixture.rows(whole.train), TakenRows.of(whole.train.rows, half))
        assert(SourceFixture.rows(some.train) == (0 until taken.rows).map(row => all(taken(row))))
        assert(SourceFixture.rows(some.test) == SourceFixture.rows(whole.test))
        assert((facts.trainRows, facts.testRows) == ((taken.rows, 6)))
        assert(facts.heldBytes == (taken.rows + 6) * (if (mapped == "0") 15 + 4 else 4))
      }
  }

  test("files over the decoding limit are checked by their trailer") {
    withFolder(Map(TrainImages -> gzip(good(TrainImages)), TestImages -> gzip(good(TestImages)).dropRight(5))) {
      folder =>
        val opened = IdxFolder.open(folder.toString, hadoop)
        val whole = opened.find(TrainImages)
        whole.verifyLength(whole.imageHeader(), decodeLimit = 0)
        val cut = opened.find(TestImages)
        assertSays(
          intercept[ConfigurationException](cut.verifyLength(cut.imageHeader(), decodeLimit = 0)).getMessage,
          "trailer"
        )
    }
  }

  test("MNIST: 60,000 and 10,000 rows, the first label a 5, the mean pixel 0.1307") {
    val set = settings(TestData.require("mnist").toString)
    val facts = source.inspect(set, hadoop)
    assert((facts.trainRows, facts.testRows, facts.shape) == ((60000, 10000, Seq(1, 28, 28))))
    val train = source.open(set, hadoop).train
    val reader = new BatchReader(train, 1000)
    assert(reader.readRange(0, 1).labels.get(0) == 5)
    val sum = (0 until 60).map { part =>
      val batch = reader.readRange(part * 1000, part * 1000 + 1000)
      (0 until 784000).map(i => batch.features.get(i).toDouble).sum
    }.sum
    assert(math.abs(sum / (60000 * 784) - 0.1307) < 1e-4)
  }

  test("Fashion-MNIST: exactly 6,000 training rows of each class") {
    val train = source.open(settings(TestData.require("fashion-mnist").toString), hadoop).train
    val reader = new BatchReader(train, 1000)
    val counts = new Array[Int](10)
    (0 until 60).foreach { part =>
      val batch = reader.readRange(part * 1000, part * 1000 + 1000)
      (0 until 1000).foreach(row => counts(batch.labels.get(row).toInt) += 1)
    }
    assert(counts.forall(_ == 6000))
  }
}
