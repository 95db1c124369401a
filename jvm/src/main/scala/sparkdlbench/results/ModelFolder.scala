package sparkdlbench.results

import sparkdlbench.common.Json
import sparkdlbench.data.RowInput
import sparkdlbench.model.ParameterSpec

import java.nio.charset.StandardCharsets.{ISO_8859_1, UTF_8}
import java.nio.file.{Files, Path}
import java.nio.{ByteBuffer, ByteOrder}
import java.util.zip.{CRC32, ZipEntry, ZipOutputStream}

/**
 * A trained model on disk, as `sparkdl_bench.load` reads it: `model.json` (the layer specification), `input.json` (how rows become the
 * model's) and `weights.npz`, which is NumPy's own format: a zip of `.npy` files, one for each parameter and running statistic by its name.
 */
object ModelFolder {
  private val ChunkValues = 1 << 18

  val InputFile = "input.json"

  def write(folder: Path, model: SavedModel): Unit = {
    import model.{spec, statistics, weights}
    Files.createDirectories(folder)
    Files.write(folder.resolve("model.json"), (spec.toJson + "\n").getBytes(UTF_8))
    Files.write(folder.resolve(InputFile), (inputJson(model.input) + "\n").getBytes(UTF_8))
    val zip = new ZipOutputStream(Files.newOutputStream(folder.resolve("weights.npz")))
    try {
      zip.setMethod(ZipOutputStream.STORED)
      spec.layout.foreach(add(zip, _, weights))
      spec.statistics.foreach(add(zip, _, statistics))
    } finally zip.close()
  }

  /** The fields of RowInput; `subtract` and `multiply` are those of its change, value by value. */
  def inputJson(input: RowInput): String = Json.line(
    Json.fields(
      "shape" -> input.shape,
      "columns" -> input.columns,
      "factor" -> input.factor,
      "crop" -> input.crop,
      "labels" -> input.labels,
      "subtract" -> input.change.map(_.subtract).getOrElse(Array.emptyFloatArray),
      "multiply" -> input.change.map(_.factor).getOrElse(Array.emptyFloatArray)
    ) ++ (if (input.binary) Some("binary" -> true) else None)
  )

  private def add(zip: ZipOutputStream, place: ParameterSpec, values: Array[Float]): Unit = {
    val header = npyHeader(place.shape)
    def parts = Iterator(header) ++ (place.offset until place.offset + place.length by ChunkValues).iterator.map { from =>
      bytes(values, from, math.min(place.offset + place.length, from + ChunkValues))
    }
    val sum = new CRC32
    parts.foreach(part => sum.update(part, 0, part.length))
    val entry = new ZipEntry(s"${place.name}.npy")
    entry.setSize(header.length + 4L * place.length)
    entry.setCrc(sum.getValue)
    entry.setTime(0) // the same weights are the same file
    zip.putNextEntry(entry)
    parts.foreach(part => zip.write(part, 0, part.length))
    zip.closeEntry()
  }

  private def bytes(values: Array[Float], from: Int, until: Int): Array[Byte] = {
    val buffer = ByteBuffer.allocate(4 * (until - from)).order(ByteOrder.LITTLE_ENDIAN)
    buffer.asFloatBuffer().put(values, from, until - from)
    buffer.array
  }

  /** Version 1.0: magic, length of the text, the text, whose end is at a multiple of 64. */
  private def npyHeader(shape: Seq[Int]): Array[Byte] = {
    val sizes = if (shape.size == 1) s"${shape.head}," else shape.mkString(", ")
    val text = s"{'descr': '<f4', 'fortran_order': False, 'shape': ($sizes), }"
    val length = (10 + text.length + 1 + 63) / 64 * 64
    val padded = text.padTo(length - 11, ' ') + "\n"
    val buffer = ByteBuffer.allocate(length).order(ByteOrder.LITTLE_ENDIAN)
    buffer.put(0x93.toByte).put("NUMPY".getBytes(ISO_8859_1)).put(1.toByte).put(0.toByte)
    buffer.putShort(padded.length.toShort).put(padded.getBytes(ISO_8859_1))
    buffer.array
  }
}
