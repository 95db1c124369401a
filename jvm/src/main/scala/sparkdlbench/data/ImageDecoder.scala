package sparkdlbench.data

import java.awt.image.{BufferedImage, IndexColorModel, Raster}
import java.io.{ByteArrayInputStream, IOException}
import javax.imageio.event.IIOReadWarningListener
import javax.imageio.stream.MemoryCacheImageInputStream
import javax.imageio.{IIOException, ImageIO, ImageReader}
import scala.jdk.CollectionConverters._

/**
 * JPEG and PNG images as rows of bytes, channels first. An image of another size is resized by a triangle filter over the source pixels that each
 * target pixel covers (as Pillow's BILINEAR does); colours become grey by ITU-R BT.601 where one channel is asked for.
 *
 * @param shape
 *   channels (1 or 3), height, width
 */
private[data] final class ImageDecoder(shape: Seq[Int]) {
  private val (channels, height, width) = (shape.head, shape(1), shape(2))

  /** The row, or what is wrong with the image. Takes no more memory than `MostPixels` need. */
  def decode(content: Array[Byte]): Either[String, Array[Byte]] =
    format(content).flatMap { name =>
      val readers = ImageIO.getImageReadersByFormatName(name).asScala
      // Another ImageIO plug-in on the class path must not change what a data set's pixels are.
      readers.find(_.getClass.getName.startsWith("com.sun.imageio.")).toRight(s"this JVM reads no $name").flatMap {
        reader =>
          try pixels(reader, content, name).map(resized)
          catch {
            case cause: IOException => Left(s"is a damaged $name file (${said(cause)})")
            // The readers of the JDK throw whatever a damaged file leads them to.
            case cause: RuntimeException =>
              Left(s"is a damaged $name file (${cause.getClass.getSimpleName}: ${said(cause)})")
          } finally reader.dispose()
      }
    }

  private def format(content: Array[Byte]): Either[String, String] =
    if (content.isEmpty) Left("is empty")
    else if (content.startsWith(ImageDecoder.Jpeg)) Right("jpeg")
    else if (content.startsWith(ImageDecoder.Png)) Right("png")
    else Left(s"is neither JPEG nor PNG: it starts with ${content.take(4).map(b => f"${b & 0xff}%02x").mkString(" ")}")

  private def pixels(reader: ImageReader, content: Array[Byte], name: String): Either[String, ImageLines] = {
    reader.setInput(new MemoryCacheImageInputStream(new ByteArrayInputStream(content)), false, true)
    val (w, h) = (reader.getWidth(0), reader.getHeight(0))
    if (w < 1 || h < 1) Left(s"is a $name image of $w × $h pixels")
    else if (w.toLong * h > ImageDecoder.MostPixels || math.max(w, h) > ImageDecoder.MostSide)
      Left(
        s"says that it is $w × $h pixels; at most ${ImageDecoder.MostPixels} in all and ${ImageDecoder.MostSide} a side are read"
      )
    else
      whole(reader, name)(
        try ImageLines.of(reader.read(0), channels)
        catch {
          case unsupported: IIOException if name == "jpeg" && reader.canReadRaster =>
            // The JDK's reader knows no colour space of four channels.
            val raster = reader.readRaster(0, null)
            if (raster.getNumBands != 4) throw unsupported
            ImageLines.ofInk(raster, ImageDecoder.adobeTransform(content), channels)
        }
      )
  }

  /** The JDK's JPEG reader fills what is missing of an image with grey, and warns of it alone. */
  private def whole(reader: ImageReader, name: String)(read: => ImageLines): Either[String, ImageLines] = {
    var cut = false
    val listener: IIOReadWarningListener = (_, warning) => cut ||= warning.contains("premature end of data")
    reader.addIIOReadWarningListener(listener)
    val lines =
      try read
      finally reader.removeIIOReadWarningListener(listener)
    if (cut) Left(s"is a damaged $name file: its image data end too early") else Right(lines)
  }

  private def resized(image: ImageLines): Array[Byte] = {
    val out = new Array[Byte](channels * height * width)
    val (rows, columns) = (Triangle.weights(image.height, height), Triangle.weights(image.width, width))
    val narrow = Array.fill(channels)(new Array[Float](image.height * width))
    (0 until image.height).foreach { y =>
      image.line(y).zip(narrow).foreach { case (line, plane) => Triangle.horizontal(line, columns, plane, y * width) }
    }
    narrow.zipWithIndex.foreach { case (plane, channel) =>
      Triangle.vertical(plane, width, rows, out, channel * height * width)
    }
    out
  }

  private def said(cause: Throwable): String =
    Option(cause.getMessage).fold("no message")(_.replaceAll("\\s+", " ").take(200))
}

private[data] object ImageDecoder {

  /** 32 Mi pixels: 96 MB in three channels of bytes, which is what decoding an image holds at a time. */
  val MostPixels: Long = 1L << 25

  /** The lines of an image are narrowed before they are thinned out: a tall image's take memory by its height. */
  val MostSide: Int = 1 << 15
  private val Jpeg = Array(0xff, 0xd8).map(_.toByte)
  private val Png = Array(0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a).map(_.toByte)

  /** The transform that an Adobe marker names: 2 where the first three of four channels are YCbCr; -1 without a marker. */
  private def adobeTransform(content: Array[Byte]): Int = {
    val at = content.indexOfSlice("Adobe".getBytes("US-ASCII"))
    if (at >= 0 && at + 11 < content.length) content(at + 11) & 0xff else -1
  }
}

/**
 * An image line by line, so that no more than the decoded image itself is held.
 *
 * @param line
 *   the channels of line y, values 0 to 255
 */
private[data] final case class ImageLines(width: Int, height: Int, line: Int => Array[Array[Float]])

private[data] object ImageLines {
  def of(image: BufferedImage, channels: Int): ImageLines = {
    val raster = image.getRaster
    val direct = !image.getColorModel.isInstanceOf[IndexColorModel] && raster.getSampleModel.getSampleSize.forall(
      size => size == 8 || size == 16
    )
    // Java takes grey samples for linear light and would brighten them on the way to RGB; no other reader does.
    val used = if (raster.getNumBands < 3) 1 else 3
    val packed = new Array[Int](image.getWidth)
    def line(y: Int): Array[Array[Float]] =
      if (direct) Array.tabulate(used)(samples(raster, y, _))
      else {
        image.getRGB(0, y, image.getWidth, 1, packed, 0, image.getWidth)
        Array(16, 8, 0).map(shift => packed.map(pixel => ((pixel >> shift) & 0xff).toFloat))
      }
    ImageLines(image.getWidth, image.getHeight, y => matched(line(y), channels))
  }

  /** CMYK, or YCCK where `transform` is 2; with an Adobe marker the values are inverted, as Photoshop writes them. */
  def ofInk(raster: Raster, transform: Int, channels: Int): ImageLines = {
    def inverted(plane: Array[Float]) = if (transform >= 0) plane else plane.map(255 - _)
    def line(y: Int): Array[Array[Float]] = {
      val ink = Array.tabulate(4)(samples(raster, y, _))
      val light = inverted(ink(3))
      val colours = if (transform == 2) fromYcc(ink) else ink.take(3).map(inverted)
      colours.map(plane => plane.indices.map(i => plane(i) * light(i) / 255).toArray)
    }
    ImageLines(raster.getWidth, raster.getHeight, y => matched(line(y), channels))
  }

  /** ITU-R BT.601, full range, as in JFIF. */
  private def fromYcc(planes: Array[Array[Float]]): Array[Array[Float]] = {
    val Array(light, blue, red) = planes.take(3): @unchecked
    def clamp(value: Float): Float = math.max(0f, math.min(255f, value))
    Array(
      light.indices.map(i => clamp(light(i) + 1.402f * (red(i) - 128))).toArray,
      light.indices.map(i => clamp(light(i) - 0.344136f * (blue(i) - 128) - 0.714136f * (red(i) - 128))).toArray,
      light.indices.map(i => clamp(light(i) + 1.772f * (blue(i) - 128))).toArray
    )
  }

  private def samples(raster: Raster, y: Int, band: Int): Array[Float] = {
    val found = raster.getSamples(0, y, raster.getWidth, 1, band, new Array[Float](raster.getWidth))
    if (raster.getSampleModel.getSampleSize(band) == 16) found.map(_ / 257) else found
  }

  private def matched(planes: Array[Array[Float]], channels: Int): Array[Array[Float]] =
    if (planes.length == channels) planes
    else if (channels == 3) Array.fill(3)(planes.head)
    else {
      val Array(red, green, blue) = planes: @unchecked
      Array(red.indices.map(i => 0.299f * red(i) + 0.587f * green(i) + 0.114f * blue(i)).toArray)
    }
}

/** Resizing by a triangle filter, one direction after the other. */
private[data] object Triangle {

  /** For each target place the first source place and the weights from there on, which sum to 1. */
  final case class Window(first: Int, weights: Array[Float])

  def weights(from: Int, to: Int): Array[Window] = {
    val scale = from.toDouble / to
    val radius = math.max(1.0, scale)
    Array.tabulate(to) { place =>
      val centre = (place + 0.5) * scale
      val first = math.max(0, (centre - radius + 0.5).toInt)
      val end = math.max(first + 1, math.min(from, (centre + radius + 0.5).toInt))
      val raw = Array.tabulate(end - first)(i => math.max(0.0, 1 - math.abs((first + i + 0.5 - centre) / radius)))
      val sum = raw.sum
      Window(first, raw.map(weight => (weight / sum).toFloat))
    }
  }

  /** A line to `columns.length` values at `out`(from, …). */
  def horizontal(line: Array[Float], columns: Array[Window], out: Array[Float], from: Int): Unit = {
    var at = 0
    while (at < columns.length) {
      val column = columns(at)
      var (sum, i) = (0f, 0)
      while (i < column.weights.length) { sum += line(column.first + i) * column.weights(i); i += 1 }
      out(from + at) = sum
      at += 1
    }
  }

  /** Lines to `rows.length` of them, rounded to bytes at `out`(from, …). */
  def vertical(plane: Array[Float], width: Int, rows: Array[Window], out: Array[Byte], from: Int): Unit = {
    var at = from
    for (row <- rows; x <- 0 until width) {
      var (sum, i) = (0f, 0)
      while (i < row.weights.length) { sum += plane((row.first + i) * width + x) * row.weights(i); i += 1 }
      out(at) = math.max(0, math.min(255, math.round(sum))).toByte
      at += 1
    }
  }
}
