package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import org.tukaani.xz.{MemoryLimitException, XZIOException}
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Key, Settings}
import sparkdlbench.loss.IgnoredLabel

import java.io.{EOFException, InputStream}
import java.util.zip.ZipException

/**
 * CIFAR-10 in its binary version (A. Krizhevsky, 2009): data_batch_1.bin to data_batch_5.bin and test_batch.bin, each as it is,
 * with .gz or with .xz. A record is a label byte and 3,072 pixels: 1,024 red, 1,024 green, 1,024 blue, row by row. Rows are
 * (3, 32, 32), in the order of the files.
 */
final class Cifar10 extends DataSource with FileSource {
  import Cifar10._

  def name = "cifar10"
  def doc = "CIFAR-10's binary batches, gzip, xz or neither, from any Hadoop file system"
  def ownKeys: Seq[Key[_]] = Seq(DataKeys.path)

  def splits(settings: Settings, hadoop: Configuration): Seq[Split] = {
    val folder = settings(DataKeys.path)
    val files = DataFiles.list(DataKeys.path.name, folder, hadoop)
    val train = TrainFiles.flatMap(DataFiles.find(files, _))
    val test = DataFiles.find(files, TestFile)
    if (train.isEmpty || test.isEmpty)
      throw new ConfigurationException(
        s"The folder '$folder' (`data.path`) lacks ${if (train.isEmpty) TrainFiles.head else TestFile}. It holds ${DataFiles.some(files)}. CIFAR-10's " +
          s"binary version is ${TrainFiles.mkString(", ")} (at least one of them) and $TestFile, each as it is or with .gz or .xz."
      )
    train.map(Split.whole(_, test = false)) ++ test.map(Split.whole(_, test = true))
  }

  def layout(splits: Seq[Split], settings: Settings, hadoop: Configuration): RecordLayout =
    RecordLayout(
      Shape,
      ValueKind.UInt8,
      settings(DataKeys.classes),
      s"CIFAR-10 from ${settings(DataKeys.path)}",
      ignored = IgnoredLabel.beside(settings, settings(DataKeys.classes))
    )

  def decode(split: Split, settings: Settings, hadoop: Configuration, sink: RecordSink): Unit = {
    var stream: InputStream = null
    var record = 0L
    try {
      stream = DataFiles.open(split.file, hadoop)
      val (row, pixels) = (new Array[Byte](RecordBytes), new Array[Byte](RecordBytes - 1))
      var found = stream.readNBytes(row, 0, RecordBytes)
      while (found == RecordBytes) {
        System.arraycopy(row, 1, pixels, 0, pixels.length)
        sink.bytes(pixels, row(0) & 0xff, record, record * RecordBytes)
        record += 1
        found = stream.readNBytes(row, 0, RecordBytes)
      }
      if (found > 0)
        sink.bad(
          record,
          record * RecordBytes,
          s"the file ends after $found of its $RecordBytes bytes: it is truncated, or no CIFAR-10 batch"
        )
      else if (record == 0) sink.bad(0, 0, "the file is empty")
    } catch {
      case cause @ (_: EOFException | _: ZipException | _: XZIOException | _: MemoryLimitException) =>
        sink.bad(
          record,
          record * RecordBytes,
          s"the compressed file is truncated or damaged here (${cause.getMessage}); fetch it again"
        )
    } finally if (stream != null) stream.close()
  }
}

private object Cifar10 {
  val Shape: Seq[Int] = Seq(3, 32, 32)
  val RecordBytes: Int = 1 + Shape.product
  val TrainFiles: Seq[String] = (1 to 5).map(batch => s"data_batch_$batch.bin")
  val TestFile = "test_batch.bin"
}
