package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import sparkdlbench.ConfigurationException
import sparkdlbench.config.{Key, Settings}

/**
 * Image sets in the IDX format of MNIST and Fashion-MNIST: four files of unsigned bytes in one folder, with gzip or
 * without, on any file system that Hadoop knows. Held as one byte a value in each executor. The files must be visible
 * to every executor under the same path.
 */
final class Idx extends DataSource {
  import Idx._

  def name = "idx"
  def doc = "Images and labels in IDX files (MNIST, Fashion-MNIST), gzip or not, from any Hadoop file system"
  override def keys: Seq[Key[_]] = Seq(DataKeys.path, DataKeys.classes, scale)

  override def qualified(settings: Settings, hadoop: Configuration): Settings =
    settings.updated(DataKeys.path, IdxFolder.open(settings(DataKeys.path), hadoop).path.toString)

  def inspect(settings: Settings, hadoop: Configuration): DataFacts = {
    val folder = IdxFolder.open(settings(DataKeys.path), hadoop)
    val (train, test) = (inspectPart(folder, Train, settings), inspectPart(folder, Test, settings))
    if (train.shape != test.shape)
      throw new ConfigurationException(
        s"The training images in '${train.images.path}' are ${pixels(train)}, the test images in " +
          s"'${test.images.path}' " +
          s"${pixels(test)}; both must be the same. One of them belongs to another data set."
      )
    DataFacts(
      train.rows,
      test.rows,
      Seq(train.shape.product),
      settings(DataKeys.classes),
      s"IDX images of ${pixels(train)} from ${folder.path}"
    )
  }

  def open(settings: Settings, hadoop: Configuration): DataSets = {
    val folder = IdxFolder.open(settings(DataKeys.path), hadoop)
    DataSets(openPart(folder, Train, settings), openPart(folder, Test, settings))
  }

  private def pixels(header: ImageHeader): String = s"${header.shape.mkString(" × ")} pixels"

  private def inspectPart(folder: IdxFolder, part: Part, settings: Settings): ImageHeader = {
    val header = folder.find(part.images).imageHeader()
    checkedLabels(folder, part, header, settings)
    header.images.verifyLength(header)
    header
  }

  private def openPart(folder: IdxFolder, part: Part, settings: Settings): RowStore = {
    val header = folder.find(part.images).imageHeader()
    val labels = checkedLabels(folder, part, header, settings)
    val width = header.shape.product
    val blocks = header.images.readImages(header)
    new ByteRowStore(header.rows, width, blocks, ByteRowStore.blockShift(width), labels, settings(scale))
  }

  private def checkedLabels(folder: IdxFolder, part: Part, header: ImageHeader, settings: Settings): Array[Byte] = {
    val file = folder.find(part.labels)
    val labels = file.readLabels()
    if (labels.length != header.rows)
      throw new ConfigurationException(
        s"'${header.images.path}' holds ${header.rows} images but '${file.path}' holds ${labels.length} labels; " +
          "the two counts " +
          "must be equal. One of them belongs to another data set, or was cut and its header rewritten; fetch both " +
          "again."
      )
    val classes = settings(DataKeys.classes)
    labels.indexWhere(label => (label & 0xff) >= classes) match {
      case -1 => labels
      case row =>
        throw new ConfigurationException(
          s"File '${file.path}' has the label ${labels(row) & 0xff} in row $row; with `data.classes` = $classes " +
            "labels are 0 to " +
            s"${classes - 1}. Set `data.classes` to the number of classes of this data set (the largest label is " +
            s"${labels.map(_ & 0xff).max}), or mend the file."
        )
    }
  }
}

object Idx {
  val scale: Key[Double] =
    Key.number("data.scale", "0.00392156862745098", 0, "Factor from stored bytes to features; the default is 1/255")

  private final case class Part(images: String, labels: String)
  private val Train = Part("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
  private val Test = Part("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
}
