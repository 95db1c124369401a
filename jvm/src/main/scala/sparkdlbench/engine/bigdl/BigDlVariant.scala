package sparkdlbench.engine.bigdl

import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{RunKeys, Settings}
import sparkdlbench.engine.{Engine, EngineMemory, EngineVariant}
import sparkdlbench.loss.{BatchLoss, ClassWeights, IgnoredLabel}
import sparkdlbench.model.ModelSpec
import sparkdlbench.vector.VectorMemory

/**
 * BigDL DLlib's own layers (Dai et al., SoCC 2019) under our synchronisation: beside BigDL's own trainer (the peer `bigdl`) the difference
 * is synchronisation alone. Spark 3.5; needs BigDL's jars at run time.
 */
final class BigDlVariant extends EngineVariant {
  def name = "bigdl"
  def doc = "BigDL DLlib's layers in the executor's JVM, one thread a worker; Spark 3.5, with BigDL's jars"

  def check(spec: ModelSpec, threads: Int, settings: Settings): Unit = {
    val tooMany = Some(
      s"The engine 'bigdl' computes with one thread a worker, as BigDL does, and $threads were asked for (engine.threads, or spark.task.cpus). " +
        "Set engine.threads=1, and workers to the number of cores."
    ).filter(_ => threads > 1)
    BigDlLibrary.refusal
      .orElse(BigDlLayers.refusal(spec))
      .orElse(tooMany)
      .orElse(BigDlVariant.unheard(settings))
      .foreach(reason => throw new ConfigurationException(reason))
  }

  def load(spec: ModelSpec, rows: Int, threads: Int, settings: Settings, vectors: VectorMemory): Engine = {
    spec.shapes // throws where layers do not fit together
    check(spec, threads, settings)
    new BigDlEngine(
      spec,
      rows,
      settings(RunKeys.seed),
      BigDlLibrary.load(),
      BatchLoss.of(settings, spec.classes),
      ClassWeights.of(settings),
      IgnoredLabel.of(settings),
      vectors
    )
  }

  /** Its storage, each layer's output, the gradients of what layers read, and what modules keep besides. */
  def memory(spec: ModelSpec, rows: Int): EngineMemory = {
    val values = spec.shapes.map(_.map(_.toLong).product)
    val read = spec.graph.flatMap(_.map(values)).sum
    EngineMemory(
      direct = 0,
      native = 0,
      library = BigDlVariant.LibraryBytes,
      heap = 8L * spec.parameterCount + 4L * rows * (values.sum + read + BigDlLayers.kept(spec))
    )
  }
}

private[bigdl] object BigDlVariant {

  /** BigDL's MKL. */
  val LibraryBytes: Long = 128L << 20

  /**
   * Keys of the engine `libtorch` that this one cannot follow, and the values that say what it does. By their names: this engine must
   * not need the other's classes.
   */
  private val done: Seq[(String, Seq[String])] = Seq(
    "engine.device" -> Seq("cpu"),
    "engine.compute" -> Seq("fp32"),
    "engine.blas" -> Seq("mkl", "auto"),
    "engine.cbwr" -> Seq("off", "auto")
  )

  /** Why settings ask for what it does not do; it would do the other thing without a word. */
  def unheard(settings: Settings): Option[String] = done.collectFirst {
    case (key, valid) if settings.entries.get(key).exists(value => !valid.contains(value)) =>
      s"$key=${settings.entries(key)} was asked for, and the engine 'bigdl' has no choice there: it computes on the CPU, in fp32, with " +
        s"BigDL's own MKL, whose reproducibility mode nobody sets. Valid for it: ${valid.mkString(", ")}. Set $key=${valid.head}, leave the key " +
        "out, or set engine.name=libtorch."
  }
}
