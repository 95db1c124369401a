package sparkdlbench.data

import org.apache.hadoop.fs.FSDataInputStream

import java.io.IOException
import java.nio.{ByteBuffer, ByteOrder}
import java.util.concurrent.atomic.LongAdder

/**
 * Rows of some files of decoded rows, read where they are. Thread-safe.
 *
 * @param parts
 *   whose rows are numbered one behind the other; each has some
 * @param keepOpen
 *   files that stay open between reads, until `close`
 */
private[data] final class PartRows(folder: RowsFolder, parts: IndexedSeq[RowsPart], scale: Double, keepOpen: Int = 0)
    extends AutoCloseable {
  private val layout = folder.manifest.layout
  private val starts = parts.scanLeft(0)(_ + _.rows).toArray
  private val files = folder.openParts(keepOpen)
  private val read = new LongAdder
  def width: Int = layout.width

  /** The same rows for a reader that reads often, and closes them. */
  def keepingOpen: PartRows = new PartRows(folder, parts, scale, PartRows.MostOpen)
  override def close(): Unit = files.close()

  /** Bytes of rows and labels that were read until now. */
  def bytesRead: Long = read.sum

  /** The rows of several ascending lists, one list behind the other; a list is read as one piece, what lies between its rows too. */
  def load(lists: Seq[Array[Int]]): RowStore = {
    val count = lists.map(_.length).sum
    val blocks = RowBlocks.onHeap(count, layout.rowBytes)
    val labels = new Array[Int](count)
    lists.foldLeft(0) { (at, list) => loadList(list, blocks, labels, at); at + list.length }
    new HeldRowStore(blocks, layout.kind, labels, scale)
  }

  /** The label of one row. Whoever asks for one after the other reads many at once. */
  def label(row: Int): Int = {
    val held = labels
    if (row >= held.from && row < held.from + held.values.length) held.values(row - held.from)
    else {
      val index = partOf(row)
      val first = row - starts(index)
      val count = math.min(PartRows.LabelsAtOnce, parts(index).rows - first)
      val file = folder.file(parts(index))
      val found =
        try files.use(file)(readLabels(_, parts(index), first, count))
        catch { case cause: IOException => folder.unreadable(file, cause) }
      labels = new Labels(row, found)
      found.head
    }
  }
  private final class Labels(val from: Int, val values: Array[Int])
  @volatile private var labels = new Labels(0, Array.emptyIntArray)

  private def loadList(list: Array[Int], blocks: RowBlocks, labels: Array[Int], first: Int): Unit = {
    var at = 0
    while (at < list.length) {
      val part = partOf(list(at))
      var end = at
      while (end < list.length && list(end) < starts(part + 1)) end += 1
      loadPart(part, list.slice(at, end).map(_ - starts(part)), blocks, labels, first + at)
      at = end
    }
  }

  private def partOf(row: Int): Int = {
    val found = java.util.Arrays.binarySearch(starts, row)
    if (found < 0) -found - 2 else found
  }

  /** @param wanted ascending rows of the part */
  private def loadPart(index: Int, wanted: Array[Int], blocks: RowBlocks, labels: Array[Int], first: Int): Unit = {
    val part = parts(index)
    val file = folder.file(part)
    val (from, count) = (wanted.head, wanted.last + 1 - wanted.head)
    val isWanted = if (count == wanted.length) (_: Int) => true else wanted.map(_ - from).toSet
    try
      files.use(file) { stream =>
        stream.seek(from.toLong * layout.rowBytes)
        if (blocks.fillSome(stream, first, count, isWanted) < count.toLong * layout.rowBytes)
          folder.damaged(file, s"ends before its row ${from + count - 1}")
        val found = readLabels(stream, part, from, count)
        wanted.indices.foreach(i => labels(first + i) = found(wanted(i) - from))
      }
    catch { case cause: IOException => folder.unreadable(file, cause) }
    read.add(count * (layout.rowBytes + 4L))
  }

  private def readLabels(stream: FSDataInputStream, part: RowsPart, from: Int, count: Int): Array[Int] = {
    val bytes = new Array[Byte](count * 4)
    stream.seek(part.rows.toLong * layout.rowBytes + from * 4L)
    if (stream.readNBytes(bytes, 0, bytes.length) < bytes.length)
      folder.damaged(folder.file(part), "ends before its last label")
    val found = new Array[Int](count)
    ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asIntBuffer().get(found)
    found.indices.foreach(i => folder.checkLabel(found(i), folder.file(part), from + i))
    found
  }
}

private object PartRows {
  val MostOpen = 128
  val LabelsAtOnce: Int = 1 << 16
}
