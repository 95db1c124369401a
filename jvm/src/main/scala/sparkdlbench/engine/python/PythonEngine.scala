package sparkdlbench.engine.python

import sparkdlbench.common.{ConfigurationException, Facts, Json}
import sparkdlbench.config.{Key, RunKeys, Settings}
import sparkdlbench.data.Batch
import sparkdlbench.engine.{Engine, EngineDevice, EngineMemory, Evaluation, RankGather}
import sparkdlbench.loss.{BatchLoss, ClassCounter, ClassWeights, Huber, IgnoredLabel, Loss}
import sparkdlbench.model.{Initializers, ModelSpec}
import sparkdlbench.vector.FlatBuffer

import java.nio.FloatBuffer

/**
 * An engine of `python/sparkdl_bench/engines/` under our synchronisation: the same rows, order, optimiser and evaluation as any other engine's,
 * the passes alone are Python's. Over memory that both processes map; a step costs one question and one answer (some 0.1 ms)
 * and a copy of the batch.
 */
private[python] final class PythonEngine private (
    memory: SharedMemory,
    maxRows: Int,
    classes: Int,
    process: PythonProcess,
    inJvm: Option[BatchLoss],
    ignored: Option[Int],
    val facts: Map[String, String]
) extends Engine {
  def parameters: FlatBuffer = memory.parameters
  def gradients: FlatBuffer = memory.gradients
  def statistics: FlatBuffer = memory.statistics

  def join(exchange: RankGather): Unit = () // no layer of it works over other ranks' rows

  def step(batch: Batch, weight: Float, onBucketReady: (Int, Int) => Unit): Double = {
    val loss =
      if (batch.rows == 0) {
        gradients.floats.put(0, new Array[Float](gradients.length))
        0.0
      } else {
        give(batch)
        process.step(batch.rows, batch.step, weight)
      }
    onBucketReady(0, gradients.length)
    loss
  }

  def evaluate(batch: Batch): Evaluation =
    if (batch.rows == 0) Evaluation(0, 0.0, 0)
    else {
      give(batch)
      inJvm.fold(classified(batch)) { loss =>
        Evaluation.of(
          loss,
          FloatBuffer.wrap(process.predict(batch.rows, batch.rows * classes)),
          batch.labels,
          batch.rows
        )
      }
    }

  private def classified(batch: Batch): Evaluation = {
    val (loss, correct, scores) = process.evaluate(batch.rows, batch.rows * classes)
    val found = ClassCounter.of(FloatBuffer.wrap(scores), batch.labels, batch.rows, classes, ignored)
    Evaluation(found.rows, loss, correct, counts = Some(found))
  }

  def predict(batch: Batch, scores: FloatBuffer): Unit = if (batch.rows > 0) {
    give(batch)
    scores.put(0, process.predict(batch.rows, batch.rows * classes))
    ()
  }

  def close(): Unit = process.close()

  private def give(batch: Batch): Unit = {
    require(batch.rows <= maxRows, s"a batch of ${batch.rows} rows was given to an engine loaded for at most $maxRows")
    memory.put(batch)
  }
}

private[python] object PythonEngine {
  val Auto = "auto"

  val python: Key[String] = Key.text(
    "engine.python",
    Auto,
    "Python of the engines numpy and torch on every host, with this package: a path, or auto (spark.pyspark.python, else PYSPARK_PYTHON, else " +
      "python3); a session on this host that Python starts has its own"
  )
  val pythonPath: Key[String] = Key.text(
    "engine.python_path",
    "",
    "Folders that this Python looks for packages in before all others, as in PYTHONPATH"
  )
  val timeoutSeconds: Key[Int] =
    Key.int("engine.timeout", "600", 1, "Longest wait for the engines numpy and torch: their start, or a step; seconds")
  val keys: Seq[Key[_]] = Seq(EngineDevice.key, python, pythonPath, timeoutSeconds)

  /** Of the engine `libtorch`, which these cannot follow, and the values that say what they do; by their names, as `BigDlVariant`. */
  private val done: Seq[(String, Seq[String])] = Seq(
    "engine.compute" -> Seq("fp32"),
    "engine.blas" -> Seq("auto"),
    "engine.cbwr" -> Seq("auto", "off"),
    "engine.onednn" -> Seq("on")
  )

  /** Throws a ConfigurationException where the engine `name` would do something else than is asked for, without a word. */
  def check(name: String, spec: ModelSpec, settings: Settings): Unit =
    unheard(name, settings)
      .orElse(alone(name, spec, settings))
      .foreach(reason => throw new ConfigurationException(reason))

  private def unheard(name: String, settings: Settings): Option[String] = done.collectFirst {
    case (key, valid) if settings.entries.get(key).exists(value => !valid.contains(value)) =>
      s"$key=${settings.entries(key)} was asked for, and the engine '$name' has no choice there: it computes in fp32 with what its Python brings. Valid " +
        s"for it: ${valid.mkString(", ")}. Set $key=${valid.head}, leave the key out, or set engine.name=libtorch."
  }

  private def alone(name: String, spec: ModelSpec, settings: Settings): Option[String] =
    if (spec.exchanges.isEmpty || settings(RunKeys.workers) == 1) None
    else
      Some(
        s"Batch normalisation over all workers' rows (model.sync_batch_norm, or a layer's option sync) was asked for, and the engine '$name' normalises each " +
          "worker's own rows. Set model.sync_batch_norm=false, workers=1, or engine.name=libtorch."
      )

  /** Starts the engine `name`. */
  def load(name: String, spec: ModelSpec, rows: Int, threads: Int, settings: Settings): Engine = {
    spec.shapes // throws where layers do not fit together, before a process is started
    val memory = new SharedMemory(spec, rows, if (Loss.of(settings).isBinary) spec.classes else 1)
    try {
      Initializers.fillStatistics(spec, memory.statistics)
      val process = PythonProcess.start(name, threads, settings)
      try {
        val facts = process.begin(question(name, spec, rows, memory, settings))
        new PythonEngine(
          memory,
          rows,
          spec.classes,
          process,
          BatchLoss.of(settings, spec.classes),
          IgnoredLabel.of(settings),
          facts ++ Map("engine" -> name, "threads" -> threads.toString)
        )
      } catch {
        case error: Throwable =>
          process.close()
          throw error
      }
    } finally memory.unlink()
  }

  /** The first request; `_process.py` says what its fields are. */
  private def question(name: String, spec: ModelSpec, rows: Int, memory: SharedMemory, settings: Settings): String =
    Json.line(
      Json.fields(
        "version" -> Facts.build.getOrElse("version", "unknown"),
        "engine" -> name,
        "device" -> settings(EngineDevice.key),
        "seed" -> settings(RunKeys.seed),
        "rows" -> rows,
        "loss" -> settings(RunKeys.loss),
        "delta" -> settings(Huber.delta),
        "class_weights" -> ClassWeights.of(settings).fold(Seq.empty[Float])(_.toSeq),
        "ignored_label" -> IgnoredLabel.of(settings),
        "model" -> Json.read(spec.toJson),
        "files" -> memory.files,
        "labels_at" -> memory.labelsAt,
        "ids_at" -> memory.idsAt
      )
    )

  /** The shared batch, each layer's output, its gradient, and what is made on the way. @param library the process itself, a rule of thumb */
  def memory(spec: ModelSpec, rows: Int, library: Long): EngineMemory = {
    val values = spec.shapes.map(_.map(_.toLong).product)
    EngineMemory(direct = 0, native = rows * (4L * values.head + 12 + 12L * values.drop(1).sum), library = library)
  }
}
