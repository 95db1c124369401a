package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FSDataInputStream, Path}
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Key, Settings}
import sparkdlbench.loss.IgnoredLabel

/**
 * LMDB environments as Caffe's tools write them: values are `Datum` messages of bytes, fp32 or whole JPEG or PNG files, in the order of
 * their keys. Rows are (channels, height, width); encoded images are resized to `data.shape`.
 */
final class Lmdb extends DataSource with FileSource {
  def name = "lmdb"
  def doc = "LMDB of Caffe's Datum messages, from any Hadoop file system"
  def ownKeys: Seq[Key[_]] = FileSource.path ++ Seq(DataKeys.shape)

  def splits(settings: Settings, hadoop: Configuration): Seq[Split] = {
    val test = settings(FileSource.testPath)
    Lmdb.file(DataKeys.path.name, settings(DataKeys.path), hadoop, test = false) +:
      (if (test.isEmpty) Nil else Seq(Lmdb.file(FileSource.testPath.name, test, hadoop, test = true)))
  }

  def layout(splits: Seq[Split], settings: Settings, hadoop: Configuration): RecordLayout = {
    val file = splits.head.file
    var first: Option[Array[Byte]] = None
    def failed(offset: Long, reason: String): Nothing =
      throw new ConfigurationException(
        s"File '${file.path}', byte offset $offset: $reason. Fetch or write the file again."
      )
    try Lmdb.reading(file, hadoop)(_.foreach { (value, _, _) => first = Some(value); false })
    catch { case damage: LmdbException => failed(damage.offset, damage.getMessage) }
    val message =
      first.getOrElse(throw new ConfigurationException(s"File '${file.path}' holds no entry: the data set is empty."))
    val datum =
      CaffeDatum.parse(message).fold(reason => failed(0, s"the first entry is no Caffe Datum: $reason"), identity)
    val shape = if (datum.encoded) settings(DataKeys.shape) else Seq(datum.channels, datum.height, datum.width)
    if (datum.encoded) Images.checkShape(settings)
    else if (shape.exists(_ < 1)) failed(0, s"the first entry is an image of ${shape.mkString(" × ")}")
    else DataKeys.shapeOf(settings, shape.product, s"the images in '${file.path}' are ${shape.mkString(" × ")}")
    val kind = if (datum.encoded || datum.floats.isEmpty) ValueKind.UInt8 else ValueKind.Float32
    RecordLayout(
      shape,
      kind,
      settings(DataKeys.classes),
      s"LMDB of images of ${shape.mkString(" × ")} from ${settings(DataKeys.path)}",
      ignored = IgnoredLabel.beside(settings, settings(DataKeys.classes))
    )
  }

  def decode(split: Split, settings: Settings, hadoop: Configuration, sink: RecordSink): Unit = {
    val images = if (sink.layout.shape.size == 3) Some(new ImageDecoder(sink.layout.shape)) else None
    var record = 0L
    try
      Lmdb.reading(split.file, hadoop) { lmdb =>
        lmdb.foreach { (value, number, offset) =>
          record = number + 1
          CaffeDatum.parse(value) match {
            case Left(reason) => sink.bad(number, offset, s"the entry is no Caffe Datum: $reason")
            case Right(datum) => Lmdb.send(datum, images, number, offset, sink)
          }
          true
        }
        if (record != lmdb.entries)
          sink.bad(record, 0, s"the file says that it has ${lmdb.entries} entries, and $record are there")
      }
    catch {
      case damage: LmdbException =>
        sink.bad(record, damage.offset, s"${damage.getMessage}; what comes after is not read")
    }
  }
}

private object Lmdb {
  private val Main = "data.mdb"

  def file(key: String, path: String, hadoop: Configuration, test: Boolean): Split = {
    val files = DataFiles.list(key, path, hadoop)
    val found = if (files.size == 1) files.headOption else files.find(_.name == Main)
    Split.whole(
      found.getOrElse(
        throw new ConfigurationException(
          s"The folder '$path' (`$key`) has no $Main. It holds ${DataFiles.some(files)}. Set `$key` to the folder of an LMDB environment."
        )
      ),
      test
    )
  }

  def reading[T](file: DataFile, hadoop: Configuration)(use: LmdbFile => T): T = {
    val path = new Path(file.path)
    val stream: FSDataInputStream = path.getFileSystem(hadoop).open(path)
    try use(new LmdbFile(file.bytes, (at, buffer, count) => stream.readFully(at, buffer, 0, count)))
    finally stream.close()
  }

  private def send(
      datum: CaffeDatum,
      images: Option[ImageDecoder],
      number: Long,
      offset: Long,
      sink: RecordSink
  ): Unit = {
    val wanted = sink.layout
    if (datum.encoded)
      images.fold[Either[String, Array[Byte]]](Left("is encoded, and the first entry is not"))(
        _.decode(datum.data)
      ) match {
        case Right(row) if wanted.kind == ValueKind.UInt8 => sink.bytes(row, datum.label, number, offset)
        case Right(_) => sink.bad(number, offset, "the image is encoded, and the first entry's values are fp32")
        case Left(reason) => sink.bad(number, offset, s"the image $reason")
      }
    else if (Seq(datum.channels, datum.height, datum.width) != wanted.shape)
      sink.bad(
        number,
        offset,
        s"the image is ${datum.channels} × ${datum.height} × ${datum.width}, and the set's are ${wanted.shape.mkString(" × ")}"
      )
    else if (wanted.kind == ValueKind.UInt8 && datum.data.length == datum.values)
      sink.bytes(datum.data, datum.label, number, offset)
    else if (wanted.kind == ValueKind.Float32 && datum.floats.length == datum.values)
      sink.floats(datum.floats, datum.label, number, offset)
    else
      sink.bad(
        number,
        offset,
        s"the image of ${datum.values} values has ${datum.data.length} bytes and ${datum.floats.length} fp32 values"
      )
  }
}
