package sparkdlbench.data
package fuzz

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.FileSystem
import sparkdlbench.common.SparkDLException
import sparkdlbench.config.{RunKeys, Settings}
import sparkdlbench.fuzz.FuzzTarget

import java.awt.image.BufferedImage
import java.io.{ByteArrayOutputStream, DataOutputStream}
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path}
import javax.imageio.ImageIO

/** Readers of a set's files, as a task decodes them; bad records are left out where the input's length is even. */
abstract class SourceTarget(name: String, file: String) extends FuzzTarget(name) {
  protected lazy val path: Path = FuzzTarget.folder().resolve(file)
  protected val hadoop = new Configuration(false)

  override protected def isLawful(error: Throwable): Boolean =
    error.isInstanceOf[SparkDLException] || error.isInstanceOf[BadRecordException]

  protected def settings(keys: Seq[sparkdlbench.config.Key[_]], more: Map[String, String]): Settings =
    Settings.resolve(Map("data.path" -> path.toUri.toString) ++ more, RunKeys.own ++ keys)

  protected def decode(source: FileSource, input: Array[Byte], more: (String, String)*): Unit = {
    Files.write(path, input)
    val set = settings(source.keys, more.toMap)
    val status = FileSystem.getLocal(hadoop).getFileStatus(new org.apache.hadoop.fs.Path(path.toUri))
    val whole = Split.whole(DataFiles.fileOf(status), test = false)
    val layout = source.layout(Seq(whole), set, hadoop)
    source.unfit(whole.file, layout, set, hadoop)
    Split.ranges(whole.file, test = false, 1 + whole.file.bytes / 2).foreach { split =>
      val sink = new SourceTarget.Checking(layout, input.length % 2 == 0)
      sink.file = split.file.path
      source.decode(split, set, hadoop, sink)
    }
  }
}

private object SourceTarget {
  final class Checking(layout: RecordLayout, skip: Boolean) extends RecordSink(layout, skip, 1000) {
    protected def accept(row: Array[Byte], label: Int): Unit =
      if (label < 0 || label >= layout.classes || row.length != layout.rowBytes)
        throw new AssertionError(s"a row of ${row.length} bytes with label $label")
  }
}

object Cifar10Fuzz extends SourceTarget("cifar10", "data_batch_1.bin") {
  def seeds: Seq[Array[Byte]] = Seq(Array.tabulate(3073 * 2)(i => if (i % 3073 == 0) 1.toByte else (i * 7).toByte))
  protected def read(input: Array[Byte]): Unit = decode(new Cifar10, input)
}

object CsvFuzz extends SourceTarget("csv", "a.csv") {
  def seeds: Seq[Array[Byte]] = Seq("1,2,3\n0,-4.5,1e-3\n\"2\",\"6\",7\n".getBytes)
  protected def read(input: Array[Byte]): Unit = decode(new Csv, input, "data.classes" -> "3")
}

object CsvNamesFuzz extends SourceTarget("csv-names", "a.csv") {
  def seeds: Seq[Array[Byte]] = Seq("y,a,b\n1,2,3\n0,-4.5,1e-3\n".getBytes)
  protected def read(input: Array[Byte]): Unit =
    decode(new Csv, input, "data.classes" -> "3", "data.header" -> "true", "data.label" -> "y")
}

object CsvPackedFuzz extends SourceTarget("csv-packed", "a.csv.gz") {
  private val text = (0 until 40).map(id => s"${id % 3},$id,${id * -0.5}\n").mkString.getBytes
  def seeds: Seq[Array[Byte]] = Seq(SourceFixture.gzip(text), SourceFixture.xz(text))
  protected def read(input: Array[Byte]): Unit = decode(new Csv, input, "data.classes" -> "3")
}

object LibsvmFuzz extends SourceTarget("libsvm", "a.svm") {
  def seeds: Seq[Array[Byte]] = Seq("1 1:0.5 7:3 20:-1e3 # x\n0 2:1\n".getBytes)
  protected def read(input: Array[Byte]): Unit = {
    Files.write(path, input)
    val set = settings((new Libsvm).keys, Map.empty)
    val status = FileSystem.getLocal(hadoop).getFileStatus(new org.apache.hadoop.fs.Path(path.toUri))
    val found = Libsvm.scan(Split.whole(DataFiles.fileOf(status), test = false), set, hadoop)
    decode(new Libsvm, input, "data.shape" -> Libsvm.width(found, set).toString)
  }
}

object LmdbFuzz extends SourceTarget("lmdb", "data.mdb") {
  def seeds: Seq[Array[Byte]] = {
    val folder = FuzzTarget.folder()
    val data = LmdbSuite.datum(1, 4, 4, new Array[Byte](16), 3)
    LmdbSuite.environment(folder.resolve("set"), Seq.fill(3)(data) :+ LmdbSuite.datum(1, 4, 4, new Array[Byte](16), 1))
    Seq(Files.readAllBytes(folder.resolve("set").resolve("data.mdb")).take(4096 * 3))
  }
  protected def read(input: Array[Byte]): Unit = decode(new Lmdb, input)
}

object DatumFuzz extends FuzzTarget("datum") {
  def seeds: Seq[Array[Byte]] =
    Seq(LmdbSuite.datum(3, 2, 2, Array.tabulate(12)(_.toByte), 7), LmdbSuite.floatDatum(1, 1, 2, Seq(1f, -2f), 1))
  protected def read(input: Array[Byte]): Unit = CaffeDatum.parse(input): Unit
}

object ImageFuzz extends FuzzTarget("image") {
  def seeds: Seq[Array[Byte]] = {
    val image = new BufferedImage(12, 9, BufferedImage.TYPE_INT_RGB)
    for (y <- 0 until 9; x <- 0 until 12) image.setRGB(x, y, x * 15 << 16 | y * 20 << 8 | (x * y))
    Seq("jpg", "png").map { format =>
      val memory = new ByteArrayOutputStream
      ImageIO.write(image, format, memory)
      memory.toByteArray
    }
  }
  // A header may ask for as many pixels as the limit allows.
  override protected def allocation: Long = 12 * ImageDecoder.MostPixels
  protected def read(input: Array[Byte]): Unit = new ImageDecoder(Seq(3, 4, 4)).decode(input) match {
    case Right(row) if row.length != 48 => throw new AssertionError(s"a row of ${row.length} bytes")
    case Right(_) => ()
    case Left(why) => if (why.isEmpty) throw new AssertionError("no reason")
  }
}

/** One file of an IDX set beside three good ones. */
abstract class IdxTarget(name: String, file: String) extends SourceTarget(name, file) {
  private def idx(header: Seq[Int], content: Array[Byte]) = {
    val memory = new ByteArrayOutputStream
    val data = new DataOutputStream(memory)
    header.foreach(number => data.writeInt(number))
    data.write(content)
    memory.toByteArray
  }
  private val good = Map(
    "train-images-idx3-ubyte" -> idx(Seq(0x803, 6, 2, 2), Array.tabulate(24)(_.toByte)),
    "train-labels-idx1-ubyte" -> idx(Seq(0x801, 6), Array.tabulate(6)(_.toByte)),
    "t10k-images-idx3-ubyte" -> idx(Seq(0x803, 2, 2, 2), new Array[Byte](8)),
    "t10k-labels-idx1-ubyte" -> idx(Seq(0x801, 2), new Array[Byte](2))
  )
  private lazy val others =
    good.filter(_._1 != file).foreach { case (other, whole) => Files.write(path.resolveSibling(other), whole) }
  def seeds: Seq[Array[Byte]] = Seq(good(file), SourceFixture.gzip(good(file)))
  protected def read(input: Array[Byte]): Unit = {
    others
    Files.write(path, input)
    val source = new Idx
    val skip = if (input.length % 2 == 0) "skip" else "fail"
    val set = settings(source.keys, Map("data.path" -> path.getParent.toUri.toString, "data.on_error" -> skip))
    val facts = source.inspect(set, hadoop)
    if (source.open(set, hadoop).train.rows != facts.trainRows) throw new AssertionError("rows that were not announced")
  }
}

object IdxImagesFuzz extends IdxTarget("idx-images", "train-images-idx3-ubyte")
object IdxLabelsFuzz extends IdxTarget("idx-labels", "train-labels-idx1-ubyte")

/** A folder of decoded rows, of which the input is one file. */
abstract class DecodedTarget(name: String, file: String) extends SourceTarget(name, file) {
  protected val layout = RecordLayout(Seq(2), ValueKind.UInt8, 3, "x")
  protected val manifest = RowsManifest("csv", layout, Seq(RowsPart("part-0", 6, test = false)), Skipped.none, 1).toJson
  protected val part = new Array[Byte](6 * 2 + 6 * 4)
  protected def read(input: Array[Byte]): Unit = {
    Files.write(path.resolveSibling(RowsFolder.Manifest), manifest.getBytes(UTF_8))
    Files.write(path.resolveSibling("part-0"), part)
    Files.write(path, input)
    val set = Settings.resolve(Map.empty, RunKeys.own ++ (new Csv).keys)
    val rows = RowsFolder.require(path.getParent.toUri.toString, hadoop)
    rows.facts(set)
    rows.open(set): Unit
  }
}

object DecodedManifestFuzz extends DecodedTarget("decoded-manifest", RowsFolder.Manifest) {
  def seeds: Seq[Array[Byte]] = Seq(manifest.getBytes(UTF_8))
}

object DecodedPartFuzz extends DecodedTarget("decoded-part", "part-0") {
  def seeds: Seq[Array[Byte]] = Seq(part)
}

object NumbersFuzz extends FuzzTarget("numbers") {
  def seeds: Seq[Array[Byte]] = Seq("1", "-2.5e3", " 7 ", "1e-45").map(_.getBytes)
  protected def read(input: Array[Byte]): Unit = {
    val text = new String(input, UTF_8)
    Numbers.float(text)
    Numbers.double(text)
    Numbers.whole(text)
    LibsvmLine.check(text, 100)
    LibsvmLine.parse(text, new Array[Float](10))
    CsvLine.fields(text, ","): Unit
  }
}
