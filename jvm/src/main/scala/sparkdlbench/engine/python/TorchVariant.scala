package sparkdlbench.engine.python

import sparkdlbench.config.{Key, Settings}
import sparkdlbench.engine.{Engine, EngineMemory, EngineVariant}
import sparkdlbench.model.ModelSpec
import sparkdlbench.vector.VectorMemory

/**
 * PyTorch with its autograd (`python/sparkdl_bench/engines/torch.py`), on the CPU or on a GPU of the worker's host, where weights are copied to it and the
 * gradient from it in each step. Whether there is such a GPU the worker itself finds out.
 */
final class TorchVariant extends EngineVariant {
  def name = "torch"
  def doc =
    "PyTorch, every layer kind by autograd, in a Python process beside each worker; on the CPU or a GPU (engine.device)"
  override def keys: Seq[Key[_]] = PythonEngine.keys

  def check(spec: ModelSpec, threads: Int, settings: Settings): Unit = PythonEngine.check(name, spec, settings)

  override def lacking(settings: Settings): Option[String] = PythonProcess.lacking(name, settings)

  def load(spec: ModelSpec, rows: Int, threads: Int, settings: Settings, vectors: VectorMemory): Engine =
    PythonEngine.load(name, spec, rows, threads, settings)

  def memory(spec: ModelSpec, rows: Int): EngineMemory = PythonEngine.memory(spec, rows, TorchVariant.LibraryBytes)
}

private[python] object TorchVariant {
  private val LibraryBytes = 512L << 20
}
