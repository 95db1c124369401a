package sparkdlbench.bench

import com.fasterxml.jackson.databind.JsonNode
import sparkdlbench.{ConfigurationException, SparkDLException}
import sparkdlbench.config.{RunKeys, Settings, Variants}
import sparkdlbench.engine.{Batch, Engine, EngineVariant, FlatBuffer}
import sparkdlbench.model.{Initializers, ModelFamily}
import sparkdlbench.optimizer.{Optimizer, OptimizerVariant, ParameterSlice}
import sparkdlbench.results.Json

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path, Paths}
import java.nio.{ByteBuffer, ByteOrder, LongBuffer}
import java.util.SplittableRandom
import scala.collection.immutable.ListMap
import scala.jdk.CollectionConverters._

/**
 * An engine's training step alone, in this JVM, without Spark: forward, backward and the optimiser's update, one rank. What
 * Python's benchmarks put beside a step of PyTorch.
 *
 * Arguments: CASE.json (batch, hidden, features, classes, threads, warmup_steps, steps, learning_rate; model and shape where it is no
 * multi-layer perceptron; settings: a list of `key=value` where the defaults do not do) and OUT.jsonl, which one line with all samples and the engine's facts is appended to.
 */
object EngineBench {
  def main(arguments: Array[String]): Unit =
    try {
      if (arguments.length != 2)
        throw new ConfigurationException(
          s"EngineBench takes CASE.json and OUT.jsonl, not '${arguments.mkString(" ")}'."
        )
      run(Json.read(new String(Files.readAllBytes(Paths.get(arguments(0))), UTF_8)), Paths.get(arguments(1)))
    } catch {
      case e: SparkDLException =>
        System.err.println(e.getMessage)
        System.exit(if (e.isInstanceOf[ConfigurationException]) 2 else 1)
    }

  private[bench] def run(spec: JsonNode, out: Path): Unit = {
    val result = new EngineCase(spec).measure()
    Files.write(out, (Json.line(result) + "\n").getBytes(UTF_8), openOptions: _*)
    ()
  }

  private val openOptions = Seq(java.nio.file.StandardOpenOption.CREATE, java.nio.file.StandardOpenOption.APPEND)
}

/** The case as the harness writes it. */
private[bench] final class EngineCase(json: JsonNode) {
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
      val samples = time(engine, optimizer, spec.layout.size, EngineCase.rows(batch, shape.product, classes))
      val facts = engine.facts ++ Map("java" -> System.getProperty("java.version"), "last_loss" -> lastLoss.toString)
      ListMap("samples_ms" -> samples.map(_ / 1e6).toSeq, "steps" -> 1, "facts" -> facts)
    } finally engine.close()
  }

  private var lastLoss = Double.NaN

  /** Nanoseconds of each measured step. */
  private def time(engine: Engine, optimizer: Optimizer, tensors: Int, rows: Batch): Array[Long] = {
    val weight = 1.0f / rows.rows
    val ignore = (_: Int, _: Int) => ()
    def step(number: Long): Unit = {
      lastLoss = engine.step(rows, weight, ignore) / rows.rows
      Optimizer.updateWhole(optimizer, engine.parameters.floats, engine.gradients.floats, tensors, number)
    }
    val warmup = json.path("warmup_steps").asInt
    (0 until warmup).foreach(number => step(number.toLong))
    val nanos = new Array[Long](json.path("steps").asInt)
    var sample = 0
    while (sample < nanos.length) {
      val start = System.nanoTime()
      step(warmup.toLong + sample)
      nanos(sample) = System.nanoTime() - start
      sample += 1
    }
    nanos
  }
}

private[bench] object EngineCase {

  /** Seeded rows in [0, 1): what they hold does not change how long a step takes. */
  def rows(count: Int, width: Int, classes: Int): Batch = {
    val random = new SplittableRandom(0)
    val features = new FlatBuffer(count * width)
    (0 until features.length).foreach(index => features.floats.put(index, random.nextDouble().toFloat))
    val labels: LongBuffer = ByteBuffer.allocateDirect(count * 8).order(ByteOrder.nativeOrder()).asLongBuffer()
    (0 until count).foreach(row => labels.put(row, random.nextInt(classes).toLong))
    Batch(count, features.floats, labels)
  }
}
