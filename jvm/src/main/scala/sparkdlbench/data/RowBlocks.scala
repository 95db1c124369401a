package sparkdlbench.data

import sparkdlbench.common.{ConfigurationException, Facts, WriteFailure}

import java.io.{IOException, InputStream}
import java.nio.channels.FileChannel
import java.nio.file.{Files, Path, StandardOpenOption}
import java.nio.{ByteBuffer, ByteOrder}
import java.util.UUID

/** How a stored value is written. @param bytes a value */
sealed abstract class ValueKind(val name: String, val bytes: Int) extends Serializable
object ValueKind {

  /** Unsigned bytes. */
  case object UInt8 extends ValueKind("uint8", 1)

  /** Little-endian fp32. */
  case object Float32 extends ValueKind("float32", 4)

  val all: Seq[ValueKind] = Seq(UInt8, Float32)
  def named(name: String): Option[ValueKind] = all.find(_.name == name)
}

/**
 * The values of rows, 2^`shift` rows a block (the last may be shorter), so that a set may be larger than one buffer. Filled
 * once, by one thread; then read by any number.
 *
 * @param rowBytes
 *   bytes of a row
 * @param mapped
 *   true where the blocks are a file mapped into memory, which the operating system pages
 */
final class RowBlocks private (
    val rows: Int,
    val rowBytes: Int,
    val mapped: Boolean,
    blocks: Array[ByteBuffer],
    shift: Int
) {

  /** Copies row `row` to `into`(0 until rowBytes). */
  def read(row: Int, into: Array[Byte]): Unit = {
    block(row).get(place(row), into, 0, rowBytes)
    ()
  }

  /** Copies row `row` as fp32 to `into`(0 until rowBytes / 4). */
  def readFloats(row: Int, into: Array[Float], scratch: Array[Byte]): Unit = {
    read(row, scratch)
    ByteBuffer.wrap(scratch).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer().get(into, 0, rowBytes / 4)
    ()
  }

  def write(row: Int, from: Array[Byte]): Unit = {
    block(row).put(place(row), from, 0, rowBytes)
    ()
  }

  /**
   * Fills the rows `first` until `first + count` from a stream.
   *
   * @return
   *   bytes read; fewer than asked for where the stream ended
   */
  def fill(stream: InputStream, first: Int, count: Int): Long = fillSome(stream, first, count, _ => true)

  /**
   * Fills the rows from `first` on with those of the stream's next `count` that are wanted; the others are passed over.
   *
   * @param wanted
   *   asked by a row's number among those `count`, from 0
   * @return
   *   bytes read, of rows that are not wanted too; fewer than asked for where the stream ended
   */
  def fillSome(stream: InputStream, first: Int, count: Int, wanted: Int => Boolean): Long = {
    lazy val scratch = new Array[Byte](RowBlocks.FillBytes)
    var (row, at) = (0, first)
    var total = 0L
    var ended = false
    while (row < count && !ended) {
      val keep = wanted(row)
      var next = row + 1
      while (next < count && wanted(next) == keep) next += 1
      val bytes = (next - row).toLong * rowBytes
      val found = if (keep) fillRows(stream, at, next - row, () => scratch) else passOver(stream, bytes, scratch)
      total += found
      ended = found < bytes
      if (keep) at += next - row
      row = next
    }
    total
  }

  private def fillRows(stream: InputStream, first: Int, count: Int, scratch: () => Array[Byte]): Long = {
    var row = first
    var total = 0L
    var ended = false
    while (row < first + count && !ended) {
      val inBlock = math.min(first + count - row, (1 << shift) - (row & ((1 << shift) - 1)))
      val wanted = inBlock * rowBytes
      val found = fillRange(stream, block(row), place(row), wanted, scratch)
      total += found
      ended = found < wanted
      row += inBlock
    }
    total
  }

  private def passOver(stream: InputStream, bytes: Long, scratch: Array[Byte]): Long = {
    var done = 0L
    var ended = false
    while (done < bytes && !ended) {
      val asked = math.min(scratch.length.toLong, bytes - done).toInt
      val found = stream.readNBytes(scratch, 0, asked)
      done += found
      ended = found < asked
    }
    done
  }

  private def fillRange(
      stream: InputStream,
      block: ByteBuffer,
      at: Int,
      wanted: Int,
      through: () => Array[Byte]
  ): Int =
    if (block.hasArray) stream.readNBytes(block.array, block.arrayOffset + at, wanted)
    else {
      val scratch = through()
      var done = 0
      var ended = false
      while (done < wanted && !ended) {
        val asked = math.min(scratch.length, wanted - done)
        val found = stream.readNBytes(scratch, 0, asked)
        block.put(at + done, scratch, 0, found)
        done += found
        ended = found < asked
      }
      done
    }

  private def block(row: Int): ByteBuffer = {
    if (row < 0 || row >= rows) throw new IndexOutOfBoundsException(s"row $row of $rows")
    blocks(row >> shift)
  }

  private def place(row: Int): Int = (row & ((1 << shift) - 1)) * rowBytes
}

object RowBlocks {
  private val BlockBytes = 1 << 26
  private val FillBytes = 1 << 16
  private val ReserveBytes = 1 << 20

  /** Rows a block, as a power of two: as many as fit 64 MiB, at least one. */
  def blockShift(rowBytes: Int): Int =
    31 - Integer.numberOfLeadingZeros(math.max(1, BlockBytes / math.max(1, rowBytes)))

  /** Rows on the heap. */
  def onHeap(rows: Int, rowBytes: Int): RowBlocks = onHeap(rows, rowBytes, blockShift(rowBytes))

  /** @param shift a block holds 2^shift rows */
  private[data] def onHeap(rows: Int, rowBytes: Int, shift: Int): RowBlocks =
    new RowBlocks(
      rows,
      rowBytes,
      false,
      sizes(rows, rowBytes, shift).map(size => ByteBuffer.allocate(size.toInt)),
      shift
    )

  /**
   * Rows in a new file of `folder`, mapped. The file has no name any more when this returns: its space is given back when
   * the mapping goes, or the process ends.
   */
  def inFile(rows: Int, rowBytes: Int, folder: Path): RowBlocks = {
    val shift = blockShift(rowBytes)
    val file = Files.createDirectories(folder).resolve(s"sparkdl-rows-${UUID.randomUUID()}")
    checkRoom(rows.toLong * rowBytes, folder)
    val channel =
      FileChannel.open(file, StandardOpenOption.CREATE_NEW, StandardOpenOption.READ, StandardOpenOption.WRITE)
    try {
      reserve(channel, rows.toLong * rowBytes, folder)
      val ends = sizes(rows, rowBytes, shift).scanLeft(0L)(_ + _)
      val blocks = ends.zip(ends.tail).map { case (from, until) =>
        channel.map(FileChannel.MapMode.READ_WRITE, from, until - from): ByteBuffer
      }
      new RowBlocks(rows, rowBytes, true, blocks, shift)
    } finally {
      channel.close()
      Files.deleteIfExists(file)
    }
  }

  /** A disk that is full when a page is written ends the process. */
  private def checkRoom(bytes: Long, folder: Path): Unit = {
    val free = Files.getFileStore(folder).getUsableSpace
    if (bytes > free)
      throw new ConfigurationException(
        s"The decoded rows are over `data.memory_limit` and would take $bytes bytes of the folder '$folder' on host ${Facts.hostName}, where $free " +
          "are free. Make room there, give Spark another folder for its own files (spark.local.dir), or raise `data.memory_limit` and the " +
          "executors' heap."
      )
  }

  /** Takes the file's room: of a disk that is full, a mapped page that is written would end the process. */
  private[sparkdlbench] def reserve(channel: FileChannel, bytes: Long, folder: Path): Unit = {
    val zeros = ByteBuffer.allocateDirect(ReserveBytes)
    try {
      var left = bytes
      while (left > 0) {
        zeros.clear().limit(math.min(left, ReserveBytes.toLong).toInt)
        left -= channel.write(zeros)
      }
    } catch {
      case cause: IOException =>
        throw new ConfigurationException(
          WriteFailure.text(
            s"A file of $bytes bytes for decoded rows over `data.memory_limit`, in the folder '$folder' on host ${Facts.hostName},",
            cause,
            "give Spark another folder for its own files (spark.local.dir), or raise `data.memory_limit` and the executors' heap"
          ),
          cause
        )
    }
  }

  private def sizes(rows: Int, rowBytes: Int, shift: Int): Array[Long] = {
    val perBlock = 1L << shift
    Array
      .range(0, ((rows + perBlock - 1) / perBlock).toInt)
      .map(block => math.min(perBlock, rows - block * perBlock) * rowBytes)
  }
}
