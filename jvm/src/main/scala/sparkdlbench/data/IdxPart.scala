package sparkdlbench.data

import java.util.Arrays
import sparkdlbench.common.ConfigurationException

/**
 * The images and labels of one half of an IDX set, checked.
 *
 * @param whole
 *   images that are read: the first so many of the file
 * @param kept
 *   those of them that are rows of the set; None: all
 * @param labels
 *   one for each image read
 */
private[data] final case class IdxPart(
    header: ImageHeader,
    whole: Int,
    kept: Option[Array[Int]],
    labels: Array[Byte],
    skipped: Skipped
) {
  def rows: Int = kept.fold(whole)(_.length)

  /** The rows that are taken, which alone are held. */
  def read(taken: TakenRows, allocate: (Int, Int) => RowBlocks, scale: Double): RowStore = {
    def imageOf(row: Int): Int = kept.fold(row)(ids => ids(row))
    // Below 0 where the image is no row.
    def rowOf(image: Int): Int = kept.fold(image)(ids => Arrays.binarySearch(ids, image))
    val blocks = header.images.readImages(header, whole, taken.rows, image => taken.has(rowOf(image)), allocate)
    val classes = Array.tabulate(taken.rows)(row => labels(imageOf(taken(row))) & 0xff)
    new HeldRowStore(blocks, ValueKind.UInt8, classes, scale)
  }
}

private[data] object IdxPart {

  private def takes(label: Byte, classes: Int, ignored: Option[Int]): Boolean =
    (label & 0xff) < classes || ignored.contains(label & 0xff)

  /** Whatever does not fit is an error. @param ignored a label besides the classes */
  def strict(header: ImageHeader, file: IdxFile, classes: Int, ignored: Option[Int] = None): IdxPart = {
    // Before they are read: a small compressed file may hold gigabytes of them.
    val count = file.labelCount()
    if (count != header.rows)
      throw new ConfigurationException(
        s"File '${file.path}' has $count labels, and '${header.images.path}' has ${header.rows} images; " +
          "each image needs one label. One of " +
          "them belongs to another data set, or was cut off."
      )
    val labels = file.readLabels()
    labels.indexWhere(label => !takes(label, classes, ignored)) match {
      case -1 => IdxPart(header, header.rows, None, labels, Skipped.none)
      case row =>
        throw new ConfigurationException(
          s"File '${file.path}' has the label ${labels(row) & 0xff} in row $row (byte offset ${offset(row)}); with `data.classes` = $classes " +
            "labels are 0 to " +
            s"${classes - 1}. Set `data.classes` to the number of classes of this data set (the largest label is " +
            s"${labels.map(_ & 0xff).max}), or fix the file."
        )
    }
  }

  /** Images without a label, labels without an image, and labels of no class are left out. */
  def lenient(header: ImageHeader, file: IdxFile, classes: Int, ignored: Option[Int] = None): IdxPart = {
    val images = header.images.wholeImages(header)
    val (labels, found) = file.labelsFound(images)
    val whole = Seq(header.rows, found, images).min
    val (good, bad) = (0 until whole).partition(row => takes(labels(row), classes, ignored))
    if (good.isEmpty)
      throw new ConfigurationException(
        s"Files '${header.images.path}' and '${file.path}' hold no image with a label below `data.classes` = $classes, and the first says " +
          s"that it holds ${header.rows}. Fetch them again, or set `data.classes`."
      )
    val missing = math.max(header.rows, found) - whole
    val truncated =
      if (missing == 0) Skipped.none
      else Skipped(missing, Seq(s"${header.images.path}: rows $whole and after lack their image or their label"))
    val unknown = Skipped.of(bad.map { row =>
      s"File '${file.path}', record $row, byte offset ${offset(row)}: the label is ${labels(row) & 0xff}."
    })
    IdxPart(header, whole, if (bad.isEmpty) None else Some(good.toArray), labels, truncated + unknown)
  }

  /** Where the label of a row lies in its file, uncompressed. */
  private def offset(row: Int): Long = IdxFile.LabelHeaderBytes + row.toLong
}
