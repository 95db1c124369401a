package sparkdlbench.data

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{FileStatus, FileSystem, Path}
import sparkdlbench.common.{ConfigurationException, Facts}

import java.io.{BufferedInputStream, DataInputStream, EOFException, FileNotFoundException, IOException, InputStream}
import java.util.zip.{GZIPInputStream, ZipException}
import scala.util.control.NonFatal

/** The folder of an IDX data set. */
private[data] final class IdxFolder(val path: Path, fileSystem: FileSystem) {

  /** The file `name`, or `name`.gz; whether it is compressed is read from its content. */
  def find(name: String): IdxFile = {
    val entries = IdxFolder.reading(path)(fileSystem.listStatus(path).filter(_.isFile).toSeq)
    Seq(name, name + ".gz").flatMap(wanted => entries.find(_.getPath.getName == wanted)).headOption match {
      case Some(entry) => new IdxFile(entry, fileSystem)
      case None =>
        val names = entries.map(_.getPath.getName).sorted.take(8)
        val held = if (names.isEmpty) "no files" else names.mkString(", ")
        throw new ConfigurationException(
          s"The data folder '$path' has no file '$name' (nor '$name.gz'). It holds $held. An IDX data set is " +
            "train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, " +
            "each as it is or with .gz; set `data.path` to " +
            "their folder."
        )
    }
  }
}

private[data] object IdxFolder {
  def open(text: String, hadoop: Configuration): IdxFolder = {
    if (text.trim.isEmpty)
      throw new ConfigurationException(
        "Configuration key 'data.path' is not set; the data source 'idx' needs the folder of its four files. Set " +
          "it with --set data.path=FOLDER."
      )
    val (fileSystem, path) =
      try {
        val named = new Path(text.trim)
        val found = named.getFileSystem(hadoop)
        (found, found.makeQualified(named))
      } catch {
        case NonFatal(cause) =>
          throw new ConfigurationException(
            s"Configuration key 'data.path' has the value '$text', which names no usable file system " +
              s"(${cause.getMessage}). Valid: a folder, " +
              "or a URI whose scheme Hadoop knows here (file:, hdfs:, …).",
            cause
          )
      }
    if (!isFolder(fileSystem, path))
      throw new ConfigurationException(
        s"The data folder '$path' (`data.path` = '$text') does not exist or is not a folder on host " +
          s"${Facts.hostName}. Set `data.path` to the folder of the four IDX files; driver and executors must " +
          "all see it under the same path (write file:/… for a local folder when Hadoop's default file system is " +
          "another)."
      )
    new IdxFolder(path, fileSystem)
  }

  private def isFolder(fileSystem: FileSystem, path: Path): Boolean = reading(path) {
    try fileSystem.getFileStatus(path).isDirectory
    catch { case _: FileNotFoundException => false }
  }

  private def reading[T](path: Path)(use: => T): T =
    try use
    catch {
      case cause: IOException =>
        throw new ConfigurationException(
          s"The data folder '$path' cannot be read on host ${Facts.hostName}: ${cause.getMessage}. Check its name and your " +
            "permissions.",
          cause
        )
    }
}

/** What the header of an image file says. `shape` is height and width in pixels. */
private[data] final case class ImageHeader(images: IdxFile, rows: Int, shape: Seq[Int]) {

  /** Bytes of the whole file, uncompressed. */
  def fileBytes: Long = IdxFile.ImageHeaderBytes + rows.toLong * shape.product
}

/**
 * One IDX file of unsigned bytes. Every method throws a ConfigurationException that names the file and what is wrong in
 * it.
 */
private[data] final class IdxFile(status: FileStatus, fileSystem: FileSystem) {
  import IdxFile._

  val path: Path = status.getPath
  private lazy val compressed: Boolean = status.getLen >= 2 && {
    val stream = fileSystem.open(path)
    try stream.read() == 0x1f && stream.read() == 0x8b
    finally stream.close()
  }

  def imageHeader(): ImageHeader = reading { stream =>
    checkMagic(stream, ImageMagic, "images")
    val (rows, height, width) = (stream.readInt(), stream.readInt(), stream.readInt())
    if (rows < 1 || height < 1 || width < 1 || height.toLong * width > MaxPixels)
      fail(
        s"says that it holds $rows images of $height × $width pixels; valid are 1 or more images of 1 to " +
          s"$MaxPixels pixels"
      )
    val header = ImageHeader(this, rows, Seq(height, width))
    if (compressed && header.fileBytes > MostGzip * status.getLen)
      fail(
        s"says that it holds $rows images of $height × $width pixels, ${header.fileBytes} bytes, and its ${status.getLen} bytes of " +
          "gzip cannot hold so many: it is truncated or damaged; fetch it again"
      )
    header
  }

  /** How many labels the header says that there are; a file that is too short for them is refused. */
  def labelCount(): Int = reading { stream =>
    val count = readLabelCount(stream)
    val wanted = LabelHeaderBytes + count.toLong
    if (!compressed && status.getLen < wanted) truncated(status.getLen, wanted)
    count
  }

  private def readLabelCount(stream: DataInputStream): Int = {
    checkMagic(stream, LabelMagic, "labels")
    val count = stream.readInt()
    if (count < 1) fail(s"says that it holds $count labels; valid are 1 or more")
    if (compressed && count > MostGzip * status.getLen)
      fail(
        s"says that it holds $count labels, and its ${status.getLen} bytes of gzip cannot hold so many: it is truncated or " +
          "damaged; fetch it again"
      )
    count
  }

  /**
   * The first `most` labels of those that are there, be they fewer than the header says, and how many are there: of labels that belong to
   * no image a few bytes of gzip may hold gigabytes.
   */
  def labelsFound(most: Int): (Array[Byte], Int) = reading { stream =>
    val count = readLabelCount(stream)
    val kept = new java.io.ByteArrayOutputStream
    var found = 0
    tolerant { scratch =>
      val read = stream.read(scratch, 0, math.min(scratch.length, count - found))
      if (read > 0) {
        kept.write(scratch, 0, math.min(read, most - kept.size))
        found += read
      }
      read > 0 && found < count
    }
    (kept.toByteArray, found)
  }

  /** How many of the images that the header speaks of are there whole. */
  def wholeImages(header: ImageHeader): Int = {
    val bytes =
      if (!compressed) status.getLen
      else
        reading { stream =>
          var total = 0L
          tolerant { scratch =>
            val read = stream.read(scratch, 0, math.min(scratch.length.toLong, header.fileBytes - total).toInt)
            if (read > 0) total += read
            read > 0 && total < header.fileBytes
          }
          total
        }
    math.min(header.rows.toLong, math.max(0L, bytes - ImageHeaderBytes) / header.shape.product).toInt
  }

  /** Repeats until `more` says no or the gzip stream breaks off. */
  private def tolerant(more: Array[Byte] => Boolean): Unit = {
    val scratch = new Array[Byte](StreamBytes)
    try while (more(scratch)) {}
    catch { case _: ZipException | _: EOFException => () }
  }

  /** All labels; `labelCount` says how many will be held. */
  def readLabels(): Array[Byte] = reading { stream =>
    val count = readLabelCount(stream)
    val labels = stream.readNBytes(count)
    if (labels.length < count) truncated(LabelHeaderBytes + labels.length, LabelHeaderBytes + count.toLong)
    checkEnd(stream, LabelHeaderBytes + count.toLong)
    labels
  }

  /** Checks that the file is as long as its header says; reads a compressed file up to `decodeLimit` bytes in full. */
  def verifyLength(header: ImageHeader, decodeLimit: Long = DecodeLimit): Unit =
    if (!compressed) {
      if (status.getLen < header.fileBytes) truncated(status.getLen, header.fileBytes)
      if (status.getLen > header.fileBytes) tooLong(header.fileBytes)
    } else if (status.getLen <= decodeLimit) {
      reading { stream =>
        val found = count(stream, header.fileBytes)
        if (found < header.fileBytes) truncated(found, header.fileBytes)
        checkEnd(stream, header.fileBytes)
      }
    } else verifyTrailer(header)

  /**
   * The pixels of those of the first `count` images that are wanted.
   *
   * @param rows
   *   how many these are
   * @param allocate
   *   (rows, bytes a row) to the memory to fill
   */
  def readImages(
      header: ImageHeader,
      count: Int,
      rows: Int,
      wanted: Int => Boolean,
      allocate: (Int, Int) => RowBlocks
  ): RowBlocks = reading { stream =>
    if (!compressed && count == header.rows) verifyLength(header)
    stream.readNBytes(ImageHeaderBytes)
    val blocks = allocate(rows, header.shape.product)
    val position = ImageHeaderBytes + blocks.fillSome(stream, 0, count, wanted)
    if (position < ImageHeaderBytes + count.toLong * header.shape.product) truncated(position, header.fileBytes)
    if (count == header.rows) checkEnd(stream, header.fileBytes)
    blocks
  }

  private def checkMagic(stream: DataInputStream, wanted: Int, content: String): Unit = {
    val found = stream.readInt()
    if (found != wanted) {
      val meaning = found match {
        case ImageMagic => " (that of images)"
        case LabelMagic => " (that of labels)"
        case _ => ""
      }
      fail(
        f"starts with the magic number 0x$found%08x$meaning; an IDX file of $content starts with 0x$wanted%08x. It " +
          "is not an IDX file, " +
          "or it was renamed; fetch it again"
      )
    }
  }

  /** The last four bytes of gzip are the uncompressed length modulo 2^32 (RFC 1952): enough to see a truncation. */
  private def verifyTrailer(header: ImageHeader): Unit = {
    val stream = fileSystem.open(path)
    val trailer =
      try { stream.seek(status.getLen - 4); Integer.reverseBytes(stream.readInt()) }
      finally stream.close()
    if (trailer != header.fileBytes.toInt)
      fail(
        s"is truncated or damaged: its gzip trailer says ${Integer.toUnsignedLong(trailer)} bytes (modulo 2^32), " +
          "its header " +
          s"${header.fileBytes} bytes uncompressed; fetch it again"
      )
  }

  private def count(stream: InputStream, limit: Long): Long = {
    val scratch = new Array[Byte](StreamBytes)
    var total = 0L
    var found = 0
    while (found >= 0 && total < limit) {
      found = stream.read(scratch, 0, math.min(scratch.length.toLong, limit - total).toInt)
      if (found > 0) total += found
    }
    total
  }

  private def checkEnd(stream: InputStream, wanted: Long): Unit = if (stream.read() >= 0) tooLong(wanted)

  private def reading[T](use: DataInputStream => T): T = guarded {
    val file = fileSystem.open(path, StreamBytes)
    try {
      val plain = if (compressed) new GZIPInputStream(file, StreamBytes) else new BufferedInputStream(file, StreamBytes)
      use(new DataInputStream(plain))
    } finally file.close()
  }

  private def guarded[T](use: => T): T =
    try use
    catch {
      case cause: ZipException => fail(s"is a damaged gzip file (${cause.getMessage}); fetch it again", cause)
      case cause: EOFException =>
        val place = if (compressed) "the gzip stream" else "the header"
        fail(s"is truncated: its ${status.getLen} bytes end in the middle of $place; fetch it again", cause)
      case cause: IOException => fail(s"cannot be read: ${cause.getMessage}", cause)
    }

  private def truncated(found: Long, wanted: Long): Nothing =
    fail(s"is truncated: it has $found bytes$uncompressed, its header says $wanted; fetch it again")

  private def tooLong(wanted: Long): Nothing =
    fail(s"is longer than its header says: $wanted bytes$uncompressed are expected; fetch it again")

  private def uncompressed: String = if (compressed) " uncompressed" else ""

  private def fail(what: String, cause: Throwable = null): Nothing =
    throw new ConfigurationException(s"File '$path' $what.", cause)
}

private[data] object IdxFile {
  val ImageMagic = 0x00000803
  val LabelMagic = 0x00000801
  val ImageHeaderBytes = 16
  val LabelHeaderBytes = 8

  /** Compressed files up to this size are decoded in full when they are checked; all are when they are opened. */
  val DecodeLimit: Long = 4L << 20
  private val MaxPixels = 1 << 28

  /** Deflate packs at most 1,032 bytes into one; the headers of small files are left room. */
  private val MostGzip = 4096L
  private val StreamBytes = 1 << 16
}
