package sparkdlbench.engine.libtorch

import sparkdlbench.config.{Key, Settings}
import sparkdlbench.engine.{Engine, EngineVariant}
import sparkdlbench.model.ModelSpec

/** bytedeco's libtorch in the executor's own process: no Python worker, no copy between the network and the gradient. */
final class LibtorchVariant extends EngineVariant {
  def name = "libtorch"
  def doc = "libtorch in the executor's JVM, over MKL or OpenBLAS"
  override def keys: Seq[Key[_]] = NativeLibraries.keys

  def load(spec: ModelSpec, rows: Int, threads: Int, settings: Settings): Engine = {
    spec.shapes // throws where layers do not fit together, before anything native is loaded
    new LibtorchEngine(spec, rows, threads, NativeLibraries.load(settings))
  }
}
