package sparkdlbench.data

import org.apache.hadoop.fs.FSDataInputStream

import java.io.{ByteArrayInputStream, IOException, InputStream}
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
  // Made once: Hadoop takes each apart, which took as long as reading a few rows.
  private val paths = parts.map(folder.file)
  private val read = new LongAdder
  def width: Int = layout.width
  def labels: Int = layout.labels

  /** The same rows for a reader that reads often, and closes them. */
  def keepingOpen: PartRows = new PartRows(folder, parts, scale, PartRows.MostOpen)
  override def close(): Unit = files.close()

  /** Bytes of rows and labels that were read until now. */
  def bytesRead: Long = read.sum

  /** Room for as many rows, to be filled by `load`. */
  def room(rows: Int): RowRoom = new RowRoom(rows, layout, scale)

  /** The rows of several ascending lists, one list behind the other; a list is read as one piece, what lies between its rows too. */
  def load(lists: Seq[Array[Int]]): RowStore = {
    val room = this.room(lists.map(_.length).sum)
    load(lists, room)
    room.rows
  }

  /** The same into the first places of `room`, which has as many. */
  def load(lists: Seq[Array[Int]], room: RowRoom): Unit = {
    val _ = lists.foldLeft(0) { (at, list) => loadList(list, room, at); at + list.length }
  }

  /** A label of one row, as `Batch` has it. Many are read at once, for callers that ask for one after the other. */
  def label(row: Int, at: Int = 0): Long = {
    val held = heldLabels
    if (row >= held.from && row < held.from + held.values.length / labels)
      held.values((row - held.from) * labels + at)
    else {
      val index = partOf(row)
      val first = row - starts(index)
      val count = math.min(math.max(1, PartRows.LabelsAtOnce / labels), parts(index).rows - first)
      val file = paths(index)
      val found =
        try files.use(file)(readLabels(_, index, first, count))
        catch { case cause: IOException => folder.unreadable(file, cause) }
      heldLabels = new Labels(row, found)
      found(at)
    }
  }
  private final class Labels(val from: Int, val values: Array[Long])
  @volatile private var heldLabels = new Labels(0, Array.emptyLongArray)

  private def loadList(list: Array[Int], room: RowRoom, first: Int): Unit = {
    var at = 0
    while (at < list.length) {
      val part = partOf(list(at))
      var end = at
      while (end < list.length && list(end) < starts(part + 1)) end += 1
      loadPart(part, list.slice(at, end).map(_ - starts(part)), room, first + at)
      at = end
    }
  }

  private def partOf(row: Int): Int = {
    val found = java.util.Arrays.binarySearch(starts, row)
    if (found < 0) -found - 2 else found
  }

  /** @param wanted ascending rows of the part */
  private def loadPart(index: Int, wanted: Array[Int], room: RowRoom, first: Int): Unit = {
    val file = paths(index)
    val (from, count) = (wanted.head, wanted.last + 1 - wanted.head)
    try
      files.use(file) { stream =>
        stream.seek(from.toLong * layout.rowBytes)
        if (fill(stream, wanted, room.blocks, first) < count.toLong * layout.rowBytes)
          folder.damaged(file, s"ends before its row ${from + count - 1}")
        seekLabels(stream, index, from)
        var at = 0
        folder.eachLabel(stream, file, from, count) { (row, label, others) =>
          if (row == wanted(at)) { room.put(first + at, label, others); at += 1 }
        }
      }
    catch { case cause: IOException => folder.unreadable(file, cause) }
    read.add(count.toLong * (layout.rowBytes + layout.labelBytes))
  }

  /** Where rows are left out, some are few bytes: they are read together all the same. @return bytes read */
  private def fill(stream: InputStream, wanted: Array[Int], blocks: RowBlocks, first: Int): Long = {
    val (from, count) = (wanted.head, wanted.last + 1 - wanted.head)
    val bytes = count.toLong * layout.rowBytes
    if (count == wanted.length) blocks.fill(stream, first, count)
    else {
      val source =
        if (bytes > PartRows.MostGathered) stream else new ByteArrayInputStream(stream.readNBytes(bytes.toInt))
      blocks.fillSome(source, first, count, row => java.util.Arrays.binarySearch(wanted, row + from) >= 0)
    }
  }

  private def seekLabels(stream: FSDataInputStream, index: Int, from: Int): Unit =
    stream.seek(parts(index).rows.toLong * layout.rowBytes + from.toLong * layout.labelBytes)

  private def readLabels(stream: FSDataInputStream, index: Int, from: Int, count: Int): Array[Long] = {
    val found = new Array[Long](count * labels)
    seekLabels(stream, index, from)
    folder.eachLabel(stream, paths(index), from, count) { (row, label, others) =>
      found((row - from) * labels) = label
      others.indices.foreach(at => found((row - from) * labels + 1 + at) = others(at).toLong)
    }
    found
  }
}

private object PartRows {
  val MostOpen = 128
  val LabelsAtOnce: Int = 1 << 16

  /** Bytes that are read at once where some of them are left out. */
  val MostGathered: Int = 1 << 20
}

/** Room for some rows and their labels, which may be filled again and again: by one thread, for which its readers wait. */
private[data] final class RowRoom(capacity: Int, layout: RecordLayout, scale: Double) {
  val blocks: RowBlocks = RowBlocks.onHeap(capacity, layout.rowBytes)
  private val held = new HeldLabels(capacity, layout)
  val rows: HeldRowStore = held.store(blocks, scale)

  /** @param label as `RowsFolder.eachLabel` gives it */
  def put(row: Int, label: Long, others: Array[Int]): Unit = held.put(row, label, others)
}

/** Labels of rows that are held, and their weights where they have some. */
private[data] final class HeldLabels(rows: Int, layout: RecordLayout) {
  private val labels = new Array[Int](Math.multiplyExact(rows, layout.labels))
  private val weights = if (layout.weighted) Some(new Array[Int](rows)) else None

  /** @param others labels behind the first */
  def put(row: Int, label: Long, others: Array[Int]): Unit = {
    labels(row * layout.labels) = label.toInt
    if (others.nonEmpty) System.arraycopy(others, 0, labels, row * layout.labels + 1, others.length)
    weights.foreach(_(row) = (label >> 32).toInt)
  }

  def store(blocks: RowBlocks, scale: Double): HeldRowStore =
    new HeldRowStore(blocks, layout.kind, labels, scale, weights, layout.labels)
}
