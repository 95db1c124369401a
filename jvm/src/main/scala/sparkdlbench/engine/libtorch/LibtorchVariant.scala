package sparkdlbench.engine.libtorch

import sparkdlbench.config.{Key, RunKeys, Settings}
import sparkdlbench.engine.{Engine, EngineMemory, EngineVariant}
import sparkdlbench.loss.{BatchLoss, ClassWeights, IgnoredLabel}
import sparkdlbench.model.{DropoutKind, ModelSpec}
import sparkdlbench.vector.VectorMemory

/** bytedeco's libtorch in the executor's own process: no Python worker, no copy between the network and the gradient. */
final class LibtorchVariant extends EngineVariant {
  def name = "libtorch"
  def doc = "libtorch in the executor's JVM, over MKL or OpenBLAS"
  override def keys: Seq[Key[_]] = NativeLibraries.keys :+ ComputeType.key

  def check(spec: ModelSpec, threads: Int, settings: Settings): Unit = {
    NativeLibraries.checkDevice(settings)
    TorchLayer.check(spec)
  }

  def load(spec: ModelSpec, rows: Int, threads: Int, settings: Settings, vectors: VectorMemory): Engine = {
    spec.shapes // throws where layers do not fit together, before anything native is loaded
    val bf16 = ComputeType.isBf16(settings)
    val libraries = NativeLibraries.load(settings)
    val (inJvm, weights) = (BatchLoss.of(settings, spec.classes), ClassWeights.of(settings))
    val ignored = IgnoredLabel.of(settings)
    new LibtorchEngine(spec, rows, threads, settings(RunKeys.seed), bf16, libraries, inJvm, weights, ignored, vectors)
  }

  /** As if no two layers shared the memory between them, and every product needed a transposed copy of its result. */
  def memory(spec: ModelSpec, rows: Int): EngineMemory = {
    val between = spec.shapes.drop(1).map(_.map(_.toLong).product)
    val dropped = spec.layers.zip(between).collect { case (layer, width) if DropoutKind.drops(layer) => width }.sum
    EngineMemory(
      direct = 4L * rows * (3L * spec.classes + spec.inputShape.map(_.toLong).product + dropped),
      native = 4L * rows * 3 * between.sum,
      library = LibtorchVariant.LibraryBytes
    )
  }
}

private[libtorch] object LibtorchVariant {

  /** Resident code and tables of libtorch and its BLAS, and what they keep for themselves. */
  val LibraryBytes: Long = 256L << 20
}
