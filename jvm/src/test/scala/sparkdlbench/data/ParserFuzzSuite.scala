package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import sparkdlbench.OnOneLine
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{RunKeys, Settings}

import java.awt.image.BufferedImage
import java.io.{ByteArrayOutputStream, DataOutputStream}
import java.lang.management.ManagementFactory
import java.nio.file.{Files, Path}
import java.util.concurrent.{Callable, Executors, TimeUnit}
import javax.imageio.ImageIO
import scala.jdk.CollectionConverters._
import scala.util.Random

/**
 * Every parser gets good files with bytes changed, cut out, doubled and put in, from a seed: what comes of it is rows or an error that
 * names the file; no other exception, no endless loop, no memory beyond a few times the input.
 */
class ParserFuzzSuite extends OnOneLine {
  import ParserFuzzSuite._

  private val hadoop = new Configuration(false)

  /** Decodes a file as a task would, leaving bad records out in every second case. */
  private def decode(source: FileSource, more: (String, String)*)(path: Path, seed: Int): Unit = {
    val set = settings(source, path, more: _*)
    val whole = split(path)
    val layout = source.layout(Seq(whole), set, hadoop)
    Split.ranges(whole.file, test = false, 1 + whole.file.bytes / (1 + seed % 3)).foreach { split =>
      val sink = new Counting(layout, seed % 2 == 0)
      sink.file = split.file.path
      source.decode(split, set, hadoop, sink)
    }
  }

  private def settings(source: FileSource, path: Path, more: (String, String)*): Settings =
    Settings.resolve(Map("data.path" -> path.toUri.toString) ++ more, RunKeys.own ++ source.keys)

  private def split(path: Path): Split = {
    val status =
      org.apache.hadoop.fs.FileSystem.getLocal(hadoop).getFileStatus(new org.apache.hadoop.fs.Path(path.toUri))
    Split.whole(DataFiles.fileOf(status), test = false)
  }

  test("cifar10, plain, gzip and xz") {
    val plain = Array.tabulate(3073 * 6)(i => if (i % 3073 == 0) (i / 3073).toByte else (i * 7).toByte)
    Seq("bin" -> plain, "bin.gz" -> SourceFixture.gzip(plain), "bin.xz" -> SourceFixture.xz(plain)).foreach {
      case (suffix, content) =>
        fuzz(s"data_batch_1.$suffix", content, 300)(decode(new Cifar10))
    }
  }

  test("csv") {
    val text = (0 until 60).map(id => s"""${id % 3},$id,${id * -0.5},1e-${id % 4},"$id"""" + "\n").mkString
    fuzz("a.csv", text.getBytes, 300)(decode(new Csv, "data.classes" -> "3"))
    fuzz("b.csv", ("y,a,b,c,d\n" + text).getBytes, 150)(
      decode(new Csv, "data.classes" -> "3", "data.header" -> "true", "data.label" -> "y")
    )
    fuzz("c.csv.gz", SourceFixture.gzip(text.getBytes), 150)(decode(new Csv, "data.classes" -> "3"))
  }

  test("libsvm") {
    val text = (0 until 60).map(id => s"${id % 2} ${1 + id % 3}:0.5 7:$id 20:-1e3 # x\n").mkString
    fuzz("a.svm", text.getBytes, 1500)(decode(new Libsvm, "data.shape" -> "20"))
    // Without `data.shape`: whatever is damaged, rows take no more than the multiple of the text that is allowed.
    val source = new Libsvm
    fuzz("b.svm", text.getBytes, 1500) { (path, seed) =>
      val set = settings(source, path)
      val found = Libsvm.scan(split(path), set, hadoop)
      val width = Libsvm.width(found, set)
      assert(width <= Libsvm.MostAutomatic && found.rows * width * 4 <= Libsvm.MostBytes * (Files.size(path) + 1))
      assert(seed > 0 || width == 20)
      decode(source, "data.shape" -> width.toString)(path, seed)
    }
  }

  test("lmdb and Datum") {
    val folder = Files.createTempDirectory("fuzz lmdb")
    val env = org.lmdbjava.Env.create().setMapSize(16L << 20).open(folder.toFile)
    val db = env.openDbi(null: String, org.lmdbjava.DbiFlags.MDB_CREATE)
    val txn = env.txnWrite()
    def direct(bytes: Array[Byte]) = {
      val b = java.nio.ByteBuffer.allocateDirect(bytes.length); b.put(bytes); b.flip(); b
    }
    (0 until 200).foreach { id =>
      val side = if (id % 20 == 0) 80 else 4
      db.put(
        txn,
        direct(f"$id%08d".getBytes),
        direct(LmdbSuite.datum(1, side, side, new Array[Byte](side * side), id % 10))
      )
    }
    txn.commit()
    env.close()
    val content = Files.readAllBytes(folder.resolve("data.mdb"))
    Files.list(folder).iterator.asScala.toSeq.foreach(path => Files.delete(path))
    Files.delete(folder)
    fuzz("data.mdb", content, 1500)(decode(new Lmdb))
    val datum = LmdbSuite.datum(3, 8, 8, Array.tabulate(192)(_.toByte), 7)
    val random = new Random(5)
    (0 until 5000).foreach(_ => CaffeDatum.parse(mutated(datum, random)))
  }

  test("jpeg and png") {
    val image = new BufferedImage(40, 30, BufferedImage.TYPE_INT_RGB)
    for (y <- 0 until 30; x <- 0 until 40) image.setRGB(x, y, x * 5 << 16 | y * 8 << 8 | (x * y) % 256)
    Seq("jpg", "png").foreach { format =>
      val memory = new ByteArrayOutputStream
      ImageIO.write(image, format, memory)
      // A header may ask for as many pixels as the limit allows.
      fuzz(s"a.$format", memory.toByteArray, 600, allocation = 12 * ImageDecoder.MostPixels) { (path, _) =>
        new ImageDecoder(Seq(3, 8, 8)).decode(Files.readAllBytes(path)).foreach(row => assert(row.length == 192))
      }
    }
  }

  test("idx, plain and gzip, strict and lenient") {
    def file(header: Seq[Int], content: Array[Byte]) = {
      val memory = new ByteArrayOutputStream
      val data = new DataOutputStream(memory)
      header.foreach(number => data.writeInt(number))
      data.write(content)
      memory.toByteArray
    }
    val good = Map(
      "train-images-idx3-ubyte" -> file(Seq(0x803, 20, 4, 4), Array.tabulate(320)(_.toByte)),
      "train-labels-idx1-ubyte" -> file(Seq(0x801, 20), Array.tabulate(20)(i => (i % 10).toByte)),
      "t10k-images-idx3-ubyte" -> file(Seq(0x803, 5, 4, 4), new Array[Byte](80)),
      "t10k-labels-idx1-ubyte" -> file(Seq(0x801, 5), new Array[Byte](5))
    )
    val source = new Idx
    for ((name, content) <- good; packed <- Seq(content, SourceFixture.gzip(content)))
      fuzz(name, packed, 150) { (path, seed) =>
        good.filter(_._1 != name).foreach { case (other, whole) => Files.write(path.resolveSibling(other), whole) }
        val raw =
          Map("data.path" -> path.getParent.toUri.toString, "data.on_error" -> (if (seed % 2 == 0) "skip" else "fail"))
        val settings = Settings.resolve(raw, RunKeys.own ++ source.keys)
        val facts = source.inspect(settings, hadoop)
        assert(source.open(settings, hadoop).train.rows == facts.trainRows)
      }
  }

  test("the manifest and the parts of decoded rows") {
    val layout = RecordLayout(Seq(2), ValueKind.UInt8, 3, "x")
    val manifest = RowsManifest("csv", layout, Seq(RowsPart("part-0", 6, test = false)), Skipped.none, 1)
    fuzz(RowsFolder.Manifest, manifest.toJson.getBytes, 600) { (path, _) =>
      Files.write(path.resolveSibling("part-0"), new Array[Byte](6 * 6))
      val settings = Settings.resolve(Map.empty, RunKeys.own ++ (new Csv).keys)
      val rows = RowsFolder.require(path.getParent.toUri.toString, hadoop)
      rows.facts(settings)
      rows.open(settings)
      ()
    }
  }
}

object ParserFuzzSuite {
  private val CaseSeconds = 20L
  private val threads = ManagementFactory.getThreadMXBean.asInstanceOf[com.sun.management.ThreadMXBean]

  private final class Counting(layout: RecordLayout, skip: Boolean) extends RecordSink(layout, skip, 1000) {
    protected def accept(row: Array[Byte], label: Int): Unit = assert(
      label < layout.classes && row.length == layout.rowBytes
    )
  }

  def mutated(content: Array[Byte], random: Random): Array[Byte] = {
    var bytes = content
    (0 to random.nextInt(4)).foreach { _ =>
      val at = if (bytes.isEmpty) 0 else random.nextInt(bytes.length)
      val length = math.min(bytes.length - at, 1 + random.nextInt(16))
      // Lengths and counts lie at the start of most formats.
      val early = if (bytes.isEmpty) 0 else random.nextInt(math.min(bytes.length, 64))
      bytes = random.nextInt(7) match {
        case 0 => bytes.take(at)
        case 1 => bytes.patch(at, Nil, length)
        case 2 => bytes.patch(at, bytes.slice(at, at + length), 0)
        case 3 => bytes.patch(at, Seq.fill(length)(random.nextInt(256).toByte), length)
        case 4 =>
          bytes.patch(early, Seq.fill(math.min(4, bytes.length - early))(-1.toByte), math.min(4, bytes.length - early))
        case 5 => bytes.patch(early, Seq(random.nextInt(256).toByte), math.min(1, bytes.length - early))
        case _ =>
          bytes.patch(
            at,
            Seq((bytes.lift(at).getOrElse(0: Byte) ^ (1 << random.nextInt(8))).toByte),
            math.min(1, length)
          )
      }
    }
    bytes
  }

  /** @param allocation bytes that a case may allocate beyond 100 times its input */
  def fuzz(name: String, content: Array[Byte], cases: Int, allocation: Long = 64L << 20)(
      use: (Path, Int) => Unit
  ): Unit = {
    val folder = Files.createTempDirectory("fuzz")
    val path = folder.resolve(name)
    val executor = Executors.newSingleThreadExecutor()
    try {
      Files.write(path, content)
      executor
        .submit(task(use, path, 0))
        .get(CaseSeconds, TimeUnit.SECONDS) // the good file, as a check of the test itself
      (1 to cases).foreach { seed =>
        val bytes = mutated(content, new Random(seed))
        Files.write(path, bytes)
        val taken =
          try executor.submit(task(use, path, seed)).get(CaseSeconds, TimeUnit.SECONDS)
          catch { case cause: Throwable => throw new AssertionError(s"$name, seed $seed: $cause", cause) }
        assert(
          taken < allocation + 100L * bytes.length,
          s"$name, seed $seed: $taken bytes allocated for ${bytes.length}"
        )
      }
    } finally {
      executor.shutdownNow()
      Files.list(folder).iterator.asScala.toSeq.foreach(file => Files.delete(file))
      Files.delete(folder)
    }
  }

  private def task(use: (Path, Int) => Unit, path: Path, seed: Int): Callable[Long] = () => {
    val before = threads.getThreadAllocatedBytes(Thread.currentThread.getId)
    try use(path, seed)
    catch {
      case _: BadRecordException | _: ConfigurationException if seed > 0 => ()
    }
    threads.getThreadAllocatedBytes(Thread.currentThread.getId) - before
  }
}
