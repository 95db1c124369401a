package sparkdlbench.results

import sparkdlbench.common.{ConfigurationException, Json}
import sparkdlbench.data.{Normalization, RowInput}
import sparkdlbench.model.{ModelSpec, ParameterSpec}

import com.fasterxml.jackson.databind.JsonNode
import java.io.{DataInputStream, IOException}
import java.nio.charset.StandardCharsets.{ISO_8859_1, UTF_8}
import java.nio.file.{Files, Path, Paths}
import java.nio.{ByteBuffer, ByteOrder}
import java.util.zip.ZipFile
import scala.jdk.CollectionConverters._

/**
 * A trained model, all that predicting takes.
 *
 * @param weights
 *   flat, in the layout of `spec`; as are `statistics`
 * @param input
 *   how rows become the model's; the training run's own
 */
final case class SavedModel(spec: ModelSpec, weights: Array[Float], statistics: Array[Float], input: RowInput) {

  /** Whether it predicts a number: one output, where a model that tells classes apart has two or more. */
  def isRegression: Boolean = spec.classes == 1 && !input.binary

  /** How many classes it tells apart; 1 of a regression. */
  def classes: Int = if (spec.classes == 1 && input.binary) 2 else spec.classes
}

object SavedModel {

  /** Reads a folder that `ModelFolder.write` or Python's `sparkdl_bench.saved` wrote; a ConfigurationException says what is wrong with one. */
  def read(folder: Path): SavedModel =
    try {
      val spec = ModelSpec.fromJson(text(folder.resolve("model.json")))
      val zip = new ZipFile(folder.resolve("weights.npz").toFile)
      try
        SavedModel(
          spec,
          values(zip, spec.layout, spec.parameterCount),
          values(zip, spec.statistics, spec.statisticsCount),
          input(folder, spec)
        )
      finally zip.close()
    } catch {
      case cause @ (_: IOException | _: IllegalArgumentException) =>
        throw new ConfigurationException(
          s"'$folder' holds no saved model: ${cause.getMessage}. A saved model is a folder with model.json and weights.npz, as FitResult.save(folder) " +
            "and `sparkdl-bench run` write it.",
          cause
        )
    }

  /**
   * The parameters and the running statistics, flat, of an archive of NumPy's that holds an array for each by its name.
   *
   * Throws ConfigurationException: the file is none, or what it holds is not what the model has, or is not finite.
   */
  def readWeights(file: Path, spec: ModelSpec): (Array[Float], Array[Float]) =
    try {
      val zip = new ZipFile(file.toFile)
      try {
        val own = (spec.layout ++ spec.statistics).map(place => s"${place.name}.npy").toSet
        val others = zip.entries.asScala.map(_.getName).filterNot(own).toList
        val found = (values(zip, spec.layout, spec.parameterCount), values(zip, spec.statistics, spec.statisticsCount))
        if (others.nonEmpty) {
          val names = others.take(MostShown).map(name => s"'${name.stripSuffix(".npy")}'").mkString(", ")
          val more = if (others.size > MostShown) s" and ${others.size - MostShown} more" else ""
          throw new IllegalArgumentException(s"it holds $names$more, which the model has not")
        }
        Seq(found._1 -> spec.layout, found._2 -> spec.statistics).foreach { case (flat, layout) =>
          layout.find(place => (0 until place.length).exists(i => !isFinite(flat(place.offset + i)))).foreach { place =>
            throw new IllegalArgumentException(s"'${place.name}' holds NaN or infinite values")
          }
        }
        found
      } finally zip.close()
    } catch {
      case cause @ (_: IOException | _: IllegalArgumentException) =>
        throw new ConfigurationException(
          s"The weights in '$file' do not fit the model ${spec.name}: ${cause.getMessage}. It takes an array by the name and of the shape of each " +
            s"parameter and running statistic, such as ${spec.layout.headOption
                .fold("none")(place => s"'${place.name}' (${place.shape.mkString(", ")})")}; " +
            s"`sparkdl-bench list model ${spec.name} --json` prints them.",
          cause
        )
    }

  private def isFinite(value: Float): Boolean = !java.lang.Float.isNaN(value) && !java.lang.Float.isInfinite(value)

  /** A folder of a version that saved no input takes rows as the model has them. */
  private def input(folder: Path, spec: ModelSpec): RowInput = {
    val file = folder.resolve(ModelFolder.InputFile)
    val found =
      if (!Files.exists(file)) RowInput(spec.inputShape)
      else
        try parse(Json.read(text(file)))
        catch {
          case cause: com.fasterxml.jackson.core.JsonProcessingException =>
            throw new IllegalArgumentException(s"${ModelFolder.InputFile} is not JSON", cause)
        }
    val labels = found.labels.size
    val classes = if (spec.classes == 1 && found.binary) 2 else spec.classes
    if (found.modelShape.product != spec.inputShape.product || (labels > 0 && labels != classes))
      throw new IllegalArgumentException(
        s"${ModelFolder.InputFile} describes rows of ${found.modelShape.mkString(" × ")} values and $labels names of classes, and the model takes rows of " +
          s"${spec.inputShape.mkString(" × ")} and has $classes classes"
      )
    found
  }

  private def parse(json: JsonNode): RowInput = {
    def list(name: String) = json.path(name).elements.asScala.toList
    Seq("factor", "crop").filter(name => json.has(name) && !json.path(name).isNumber).foreach { name =>
      throw new IllegalArgumentException(s"${ModelFolder.InputFile} has no number as $name")
    }
    if (Seq("shape", "subtract", "multiply").flatMap(list).exists(!_.isNumber))
      throw new IllegalArgumentException(
        s"${ModelFolder.InputFile} has a shape, subtract or multiply that is no list of numbers"
      )
    val shape = list("shape").map(_.asInt)
    val (subtract, factors) =
      (list("subtract").map(_.asDouble.toFloat).toArray, list("multiply").map(_.asDouble.toFloat).toArray)
    val crop = json.path("crop").asInt(0)
    if (
      shape.isEmpty || shape.exists(_ < 1) || shape
        .map(BigInt(_))
        .product > Int.MaxValue || crop < 0 || (crop > 0 && (shape.size != 3 || crop > shape.drop(1).min))
    )
      throw new IllegalArgumentException(
        s"${ModelFolder.InputFile} has the shape ${shape.mkString(" × ")} and crop $crop"
      )
    if (Set(subtract.length, factors.length).diff(Set(0, shape.product)).nonEmpty || subtract.length != factors.length)
      throw new IllegalArgumentException(
        s"${ModelFolder.InputFile} normalises ${subtract.length} and ${factors.length} values of a row of ${shape.product}"
      )
    RowInput(
      shape,
      list("columns").map(_.asText),
      json.path("factor").asDouble(1),
      crop,
      list("labels").map(_.asText),
      if (subtract.isEmpty) None else Some(Normalization.Change(subtract, factors)),
      json.path("binary").asBoolean
    )
  }

  private def text(file: Path): String = new String(Files.readAllBytes(file), UTF_8)

  private def values(zip: ZipFile, layout: Seq[ParameterSpec], length: Int): Array[Float] = {
    val entries = layout.map { place =>
      val entry = Option(zip.getEntry(s"${place.name}.npy"))
        .getOrElse(throw new IllegalArgumentException(s"${fileOf(zip)} lacks '${place.name}'"))
      // Before memory is taken for what model.json says.
      if (entry.getSize < 4L * place.length || entry.getSize > MostInflated * math.max(1, entry.getCompressedSize))
        throw new IllegalArgumentException(
          s"'${place.name}' in ${fileOf(zip)} has ${entry.getSize} bytes (${entry.getCompressedSize} in the file), and the model has fp32 of shape " +
            s"(${place.shape.mkString(", ")}) there"
        )
      entry
    }
    val all = new Array[Float](length)
    layout.zip(entries).foreach { case (place, entry) =>
      val stream = new DataInputStream(zip.getInputStream(entry))
      try readArray(stream, place, all, fileOf(zip))
      finally stream.close()
    }
    all
  }

  /** NumPy's format, versions 1 and 2: magic, version, length of the header, header, values. */
  private def readArray(stream: DataInputStream, place: ParameterSpec, into: Array[Float], file: String): Unit = {
    def refuse(why: String) = throw new IllegalArgumentException(s"'${place.name}' in $file $why")
    val start = ByteBuffer.wrap(stream.readNBytes(8))
    if (start.remaining < 8 || start.get(0) != 0x93.toByte) refuse("is no NumPy array")
    val lengthBytes = if (start.get(6) == 1) 2 else 4
    val length = ByteBuffer.allocate(4).order(ByteOrder.LITTLE_ENDIAN).put(stream.readNBytes(lengthBytes)).getInt(0)
    if (length < 0 || length > MostHeaderBytes) refuse(s"has a header of $length bytes")
    val header = new String(stream.readNBytes(length), ISO_8859_1)
    val shape = Shape.findFirstMatchIn(header).fold(Seq(-1)) { found =>
      found.group(1).split(',').map(_.trim).filter(_.nonEmpty).map(_.toInt).toSeq
    }
    if (!header.contains("'<f4'") || header.contains("'fortran_order': True") || shape != place.shape)
      refuse(s"is ${header.trim}, and the model has fp32 of shape (${place.shape.mkString(", ")}) there")
    val bytes = stream.readNBytes(4 * place.length)
    if (bytes.length < 4 * place.length) refuse(s"ends after ${bytes.length} bytes")
    ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN).asFloatBuffer().get(into, place.offset, place.length)
    ()
  }

  private def fileOf(zip: ZipFile): String = Paths.get(zip.getName).getFileName.toString

  private val MostShown = 5
  private val MostHeaderBytes = 1 << 16

  /** Deflate makes at most 1032 bytes of one. */
  private val MostInflated = 1100L
  private val Shape = """'shape':\s*\(([^)]*)\)""".r
}
