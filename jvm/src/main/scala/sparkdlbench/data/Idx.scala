package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Key, Settings}
import sparkdlbench.loss.IgnoredLabel

/**
 * Image sets in the IDX format of MNIST and Fashion-MNIST: four files of unsigned bytes in one folder, with gzip or
 * without, on any file system that Hadoop knows. A row is an image of one channel: (1, height, width). Held as one byte a
 * value in each executor. The files must be visible
 * to every executor under the same path.
 */
final class Idx extends DataSource {
  import Idx._

  def name = "idx"
  def doc = "Images and labels in IDX files (MNIST, Fashion-MNIST), gzip or not, from any Hadoop file system"
  override def keys: Seq[Key[_]] =
    Seq(DataKeys.path, DataKeys.classes, DataKeys.scale, DataKeys.onError, Skipped.most) ++ DataKeys.pipeline

  override def qualified(settings: Settings, hadoop: Configuration): Settings =
    settings.updated(DataKeys.path, IdxFolder.open(settings(DataKeys.path), hadoop).path.toString)

  def inspect(settings: Settings, hadoop: Configuration): DataFacts = {
    val folder = IdxFolder.open(settings(DataKeys.path), hadoop)
    val (train, test) = (inspectPart(folder, Train, settings), inspectPart(folder, Test, settings))
    val (ours, theirs) = (train.header, test.header)
    if (ours.shape != theirs.shape)
      throw new ConfigurationException(
        s"The training images in '${ours.images.path}' are ${pixels(ours)}, the test images in " +
          s"'${theirs.images.path}' " +
          s"${pixels(theirs)}; both must be the same. One of them belongs to another data set."
      )
    Pipeline.facts(
      DataFacts(
        train.rows,
        test.rows,
        1 +: ours.shape,
        settings(DataKeys.classes),
        s"IDX images of ${pixels(ours)} from ${folder.path}",
        Pipeline.heldBytes(held(TakenRows.of(train.rows, settings), test), ours.shape.product, settings),
        Skipped.limited(Seq(train.skipped, test.skipped), settings),
        input = RowInput(1 +: ours.shape, factor = DataKeys.scaleOf(settings, ValueKind.UInt8))
      ),
      settings
    )
  }

  def open(settings: Settings, hadoop: Configuration): DataSets = {
    val folder = IdxFolder.open(settings(DataKeys.path), hadoop)
    val (train, test) = (check(folder, Train, settings), check(folder, Test, settings))
    val scale = DataKeys.scaleOf(settings, ValueKind.UInt8)
    Pipeline.taking(train.rows, 1 +: train.header.shape, settings) { taken =>
      def read(part: IdxPart, some: TakenRows): RowStore =
        part.read(some, Pipeline.allocate(_, _, held(taken, test), settings), scale)
      DataSets(read(train, taken), read(test, TakenRows.all(test.rows)))
    }
  }

  private def held(taken: TakenRows, test: IdxPart): Long = taken.rows.toLong + test.rows

  private def pixels(header: ImageHeader): String = s"${header.shape.mkString(" × ")} pixels"

  private def inspectPart(folder: IdxFolder, part: Part, settings: Settings): IdxPart = {
    val found = check(folder, part, settings)
    if (settings(DataKeys.onError) == "fail") found.header.images.verifyLength(found.header)
    found
  }

  private def check(folder: IdxFolder, part: Part, settings: Settings): IdxPart = {
    val header = folder.find(part.images).imageHeader()
    val file = folder.find(part.labels)
    val ignored = IgnoredLabel.beside(settings, settings(DataKeys.classes))
    if (settings(DataKeys.onError) == "skip") IdxPart.lenient(header, file, settings(DataKeys.classes), ignored)
    else IdxPart.strict(header, file, settings(DataKeys.classes), ignored)
  }
}

object Idx {
  private final case class Part(images: String, labels: String)
  private val Train = Part("train-images-idx3-ubyte", "train-labels-idx1-ubyte")
  private val Test = Part("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
}
