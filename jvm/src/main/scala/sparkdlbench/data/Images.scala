package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Key, Settings}

import scala.collection.mutable.ArrayBuffer

/**
 * Folders of JPEG and PNG images: one sub-folder a class, its name the class. Classes are numbered by the names of the sub-folders of
 * `data.path` in alphabetical order, or as `data.label_names` lists them. Rows are ordered by class, then by file name. All images are resized to
 * `data.shape` when they are decoded.
 */
final class Images extends DataSource with FileSource {
  def name = "images"
  def doc = "Folders of JPEG and PNG images, one sub-folder a class, resized, from any Hadoop file system"
  def ownKeys: Seq[Key[_]] = FileSource.path ++ Seq(TableKeys.labelNames, DataKeys.shape, FileSource.splitBytes)

  def splits(settings: Settings, hadoop: Configuration): Seq[Split] = {
    Images.checkShape(settings)
    val train = Images.files(DataKeys.path, settings, hadoop)
    val test = if (settings(FileSource.testPath).isEmpty) Nil else Images.files(FileSource.testPath, settings, hadoop)
    val names = classNames(train.map(_.parent).distinct, settings)
    test.map(_.parent).distinct.filterNot(names.contains).headOption.foreach { name =>
      throw new ConfigurationException(
        s"The folder '$name' in '${settings(FileSource.testPath)}' (`data.test_path`) is none of the classes of `data.path`: ${names.take(20).mkString(", ")}."
      )
    }
    Seq(train -> false, test -> true).flatMap { case (files, testing) => Images.cut(files, testing, settings) }
  }

  def layout(splits: Seq[Split], settings: Settings, hadoop: Configuration): RecordLayout = {
    val names = classNames(splits.filter(!_.test).flatMap(_.files).map(_.parent).distinct, settings)
    RecordLayout(
      settings(DataKeys.shape),
      ValueKind.UInt8,
      names.size,
      s"images of ${names.size} classes from ${settings(DataKeys.path)}",
      names
    )
  }

  def decode(split: Split, settings: Settings, hadoop: Configuration, sink: RecordSink): Unit = {
    val decoder = new ImageDecoder(sink.layout.shape)
    split.files.foreach { file =>
      sink.file = file.path
      if (file.bytes > Images.MostBytes)
        sink.bad(0, 0, s"the file has ${file.bytes} bytes; at most ${Images.MostBytes} are read")
      else {
        val path = new Path(file.path)
        val stream = path.getFileSystem(hadoop).open(path)
        val content =
          try stream.readNBytes(Images.MostBytes)
          finally stream.close()
        decoder.decode(content) match {
          case Right(row) => sink.bytes(row, sink.layout.labelNames.indexOf(file.parent), 0, 0)
          case Left(reason) => sink.bad(0, 0, s"the image $reason")
        }
      }
    }
  }

  private def classNames(folders: Seq[String], settings: Settings): Seq[String] = {
    val named = settings(TableKeys.labelNames)
    folders.filter(folder => named.nonEmpty && !named.contains(folder)).headOption.foreach { folder =>
      throw new ConfigurationException(
        s"The folder '$folder' in '${settings(DataKeys.path)}' is none of the classes that `data.label_names` lists: ${named.take(20).mkString(", ")}."
      )
    }
    val names = if (named.nonEmpty) named else folders.sorted
    if (names.size < 2)
      throw new ConfigurationException(
        s"The folder '${settings(DataKeys.path)}' (`data.path`) holds images of ${names.size} classes, and training needs 2 or more: one sub-folder " +
          "for each, with its images."
      )
    names
  }
}

private object Images {
  val MostBytes: Int = 256 << 20
  private val MostFiles = 512

  def files(key: Key[String], settings: Settings, hadoop: Configuration): Seq[DataFile] = {
    val folder = settings(key)
    val found = DataFiles.folders(folder, hadoop).flatMap(DataFiles.listOrNone(_, hadoop))
    if (found.isEmpty)
      throw new ConfigurationException(
        s"The folder '$folder' (`${key.name}`) has no sub-folder that holds files. Images lie in one sub-folder for each class: " +
          s"$folder/cat/1.jpg, $folder/dog/1.png, …"
      )
    found
  }

  def checkShape(settings: Settings): Unit = {
    val shape = settings(DataKeys.shape)
    if (shape.size != 3 || !Seq(1, 3).contains(shape.head))
      throw new ConfigurationException(
        s"Configuration key 'data.shape' is '${if (shape.isEmpty) "auto" else shape.mkString(",")}', and images need channels,height,width to be resized to, channels 1 or 3: " +
          "--set data.shape=3,32,32."
      )
  }

  /** Files of about `data.split_bytes` together, in their order. */
  def cut(files: Seq[DataFile], test: Boolean, settings: Settings): Seq[Split] = {
    val limit = settings(FileSource.splitBytes)
    val (splits, some) = (ArrayBuffer.empty[Split], ArrayBuffer.empty[DataFile])
    def close(): Unit =
      if (some.nonEmpty) { splits += Split(some.toList, 0, some.map(_.bytes).sum, test); some.clear() }
    files.foreach { file =>
      if (some.size >= MostFiles || (some.nonEmpty && some.map(_.bytes).sum + file.bytes > limit)) close()
      some += file
    }
    close()
    splits.toList
  }
}
