package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.Path
import org.apache.hadoop.io.Text
import org.apache.hadoop.util.LineReader

import java.io.{EOFException, InputStream}
import java.nio.charset.StandardCharsets.UTF_8
import java.util.zip.ZipException

/**
 * The lines of a range of a text file: those that begin in it, but for the range's first byte, whose line belongs to the range
 * before (Hadoop's rule, so that each line is in exactly one range). Lines end with LF, CR LF or CR.
 */
private[data] object TextLines {

  /** Longer lines are bad records: a line is held whole. */
  val MaxLineBytes: Int = 16 << 20
  private val BufferBytes = 1 << 17

  /**
   * @param use
   *   (line, its number in the range from 0, its byte offset in the file, uncompressed)
   */
  def foreach(split: Split, hadoop: Configuration, sink: RecordSink)(use: (String, Long, Long) => Unit): Unit = {
    var (record, offset) = (0L, split.from)
    var stream: InputStream = null
    try {
      stream = open(split, hadoop)
      val reader = new LineReader(stream, BufferBytes)
      val line = new Text
      if (split.from > 0) offset += reader.readLine(line, 0)
      val end = if (DataFiles.isCompressed(split.file)) Long.MaxValue else split.until
      var taken = if (offset <= end) reader.readLine(line, MaxLineBytes) else 0
      while (taken > 0) {
        if (line.getLength >= MaxLineBytes) sink.bad(record, offset, s"the line is longer than $MaxLineBytes bytes")
        else if (line.getLength > 0) use(text(line, offset), record, offset)
        record += 1
        offset += taken
        taken = if (offset <= end) reader.readLine(line, MaxLineBytes) else 0
      }
    } catch {
      case cause @ (_: EOFException | _: ZipException | _: org.tukaani.xz.XZIOException |
          _: org.tukaani.xz.MemoryLimitException) =>
        sink.bad(
          record,
          offset,
          s"the compressed file is truncated or damaged here (${cause.getMessage}); fetch it again"
        )
    } finally if (stream != null) stream.close()
  }

  /** The first line of a file, without the byte order mark; None where there is none. An IOException where it cannot be read. */
  def first(file: DataFile, hadoop: Configuration): Option[String] = {
    val stream = DataFiles.open(file, hadoop)
    try {
      val line = new Text
      if (new LineReader(stream, BufferBytes).readLine(line, MaxLineBytes) == 0) None else Some(text(line, 0))
    } finally stream.close()
  }

  private def open(split: Split, hadoop: Configuration): InputStream =
    if (DataFiles.isCompressed(split.file)) DataFiles.open(split.file, hadoop)
    else {
      val path = new Path(split.file.path)
      val file = path.getFileSystem(hadoop).open(path)
      file.seek(split.from)
      file
    }

  private def text(line: Text, offset: Long): String = {
    val marked =
      offset == 0 && line.getLength >= 3 && (line.getBytes.take(3).map(_ & 0xff).toSeq == Seq(0xef, 0xbb, 0xbf))
    val skip = if (marked) 3 else 0
    new String(line.getBytes, skip, line.getLength - skip, UTF_8)
  }
}
