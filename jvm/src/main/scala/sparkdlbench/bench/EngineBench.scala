package sparkdlbench.bench

import com.fasterxml.jackson.databind.JsonNode
import sparkdlbench.common.{ConfigurationException, Json, SparkDLException}
import sparkdlbench.config.{RunKeys, Settings, Variants}
import sparkdlbench.data.Batch
import sparkdlbench.engine.{Engine, EngineVariant}
import sparkdlbench.model.{Initializers, ModelFamily}
import sparkdlbench.optimizer.{Optimizer, OptimizerVariant, ParameterSlice}
import sparkdlbench.vector.{FlatBuffer, FloatOps}

import java.nio.channels.FileChannel
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path, Paths, StandardOpenOption}
import java.nio.{ByteBuffer, ByteOrder, LongBuffer}
import scala.collection.immutable.ListMap
import scala.jdk.CollectionConverters._

/**
 * An engine's training step alone, in this JVM, without Spark: the batch's rows, forward, backward and the optimiser's update, one rank.
 * What Python's benchmarks put beside a step of PyTorch, on the same rows in the same order.
 *
 * Arguments:
 *   - ROWS, a folder with `features.f32` (rows × features, fp32, little-endian) and `labels.i64` (one a row);
 *   - CASE.json: batch, rows, hidden, features, classes, threads, warmup_steps, steps, learning_rate; model and shape where it is no
 *     multi-layer perceptron; settings: a list of `key=value` where the defaults do not do;
 *   - OUT.jsonl, which one line with all samples and the engine's facts is appended to.
 */
object EngineBench {
  def main(arguments: Array[String]): Unit =
    try {
      if (arguments.length != 3)
        throw new ConfigurationException(
          s"EngineBench needs the folder of the rows, CASE.json and OUT.jsonl, not '${arguments.mkString(" ")}'."
        )
      val spec = Json.read(new String(Files.readAllBytes(Paths.get(arguments(1))), UTF_8))
      run(Paths.get(arguments(0)), spec, Paths.get(arguments(2)))
    } catch {
      case e: SparkDLException =>
        System.err.println(e.getMessage)
        System.exit(if (e.isInstanceOf[ConfigurationException]) 2 else 1)
    }

  private[bench] def run(rows: Path, spec: JsonNode, out: Path): Unit = {
    val result = new EngineCase(rows, spec).measure()
    Files.write(out, (Json.line(result) + "\n").getBytes(UTF_8), openOptions: _*)
    ()
  }

  private val openOptions = Seq(StandardOpenOption.CREATE, StandardOpenOption.APPEND)
}

/** The case as the harness writes it. */
private[bench] final class EngineCase(folder: Path, json: JsonNode) {
  private val batch = json.path("batch").asInt
  private val hidden = json.path("hidden").elements.asScala.map(_.asInt).mkString(",")
  private val settings: Settings = RunKeys.resolve(
    Map(
      "batch" -> batch.toString,
      "workers" -> "1",
      "model.name" -> json.path("model").asText("mlp"),
      "model.hidden" -> hidden,
      "optimizer.learning_rate" -> json.path("learning_rate").asText
    ) ++ json
      .path("settings")
      .elements
      .asScala
      .map(_.asText)
      .map(each => each.takeWhile(_ != '=') -> each.dropWhile(_ != '=').drop(1))
  )

  /** `samples_ms`, `steps` (1: each sample is one step) and `facts`. */
  def measure(): ListMap[String, Any] = {
    val stated = json.path("shape").elements.asScala.map(_.asInt).toList
    val shape = if (stated.isEmpty) Seq(json.path("features").asInt) else stated
    val classes = json.path("classes").asInt
    val spec = Variants.find[ModelFamily]("model", settings(RunKeys.model)).build(shape, classes, settings)
    val variant = Variants.find[EngineVariant]("engine", settings(RunKeys.engine))
    val engine = variant.load(spec, batch, json.path("threads").asInt, settings)
    try {
      Initializers.fill(spec, settings(RunKeys.seed), engine.parameters)
      val optimizer =
        Variants
          .find[OptimizerVariant]("optimizer", settings(RunKeys.optimizer))
          .create(ParameterSlice(0, spec.parameterCount, spec.layout), settings)
      val rows = new TrainingRows(folder, json.path("rows").asInt, shape.product, batch)
      val samples = time(engine, optimizer, spec.layout.size, rows)
      val facts = engine.facts ++ Map(
        "java" -> System.getProperty("java.version"),
        "rows" -> rows.count.toString,
        "first_loss" -> firstLoss.toString,
        "last_loss" -> lastLoss.toString
      )
      ListMap("samples_ms" -> samples.map(_ / 1e6).toSeq, "steps" -> 1, "facts" -> facts)
    } finally engine.close()
  }

  private var firstLoss = Double.NaN
  private var lastLoss = Double.NaN

  /** Nanoseconds of each measured step: bringing its rows to the batch's place is part of it, as it is of a run's step. */
  private def time(engine: Engine, optimizer: Optimizer, tensors: Int, rows: TrainingRows): Array[Long] = {
    val weight = 1.0f / batch
    val ignore = (_: Int, _: Int) => ()
    def step(number: Long): Unit = {
      lastLoss = engine.step(rows.batchOf(number), weight, ignore) / batch
      if (number == 0) firstLoss = lastLoss
      Optimizer.updateWhole(optimizer, engine.parameters.floats, engine.gradients.floats, tensors, number)
    }
    Timing.nanos(json.path("warmup_steps").asInt, json.path("steps").asInt)(step)
  }
}

/**
 * The rows that the harness wrote, walked over in their order in whole batches, again and again.
 *
 * @param count
 *   rows in the files
 */
private[bench] final class TrainingRows(folder: Path, val count: Int, width: Int, batch: Int) {
  private val features = mapped("features.f32", count.toLong * width * 4).asFloatBuffer()
  private val labels = mapped("labels.i64", count.toLong * 8).asLongBuffer()
  private val batches = count / batch
  if (batches == 0)
    throw new ConfigurationException(s"rows = $count are fewer than one batch of $batch. Ask for at least $batch rows.")

  private val into = new FlatBuffer(batch * width)
  private val labelsInto: LongBuffer =
    ByteBuffer.allocateDirect(batch * 8).order(ByteOrder.nativeOrder()).asLongBuffer()

  /** The batch of a step from 0, in memory that the next call writes anew. */
  def batchOf(step: Long): Batch = {
    val first = (step % batches).toInt * batch
    FloatOps.copy(features.slice(first * width, batch * width), into.floats)
    labelsInto.put(0, labels, first, batch)
    Batch(batch, into.floats, labelsInto)
  }

  private def mapped(name: String, bytes: Long): ByteBuffer = {
    val file = folder.resolve(name)
    val found = if (Files.isRegularFile(file)) Files.size(file) else 0L
    if (found != bytes)
      throw new ConfigurationException(s"$file has $found bytes; $count rows are $bytes. Write it anew.")
    val channel = FileChannel.open(file, StandardOpenOption.READ)
    try channel.map(FileChannel.MapMode.READ_ONLY, 0, bytes).order(ByteOrder.LITTLE_ENDIAN)
    finally channel.close()
  }
}
