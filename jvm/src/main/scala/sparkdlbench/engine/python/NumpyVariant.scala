package sparkdlbench.engine.python

import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Key, Settings}
import sparkdlbench.engine.{Engine, EngineDevice, EngineMemory, EngineVariant}
import sparkdlbench.model.ModelSpec
import sparkdlbench.vector.VectorMemory

/**
 * Forward and backward passes written out in NumPy (`python/sparkdl_bench/engines/numpy.py`): the plainest yardstick, with one worker that of a single
 * machine, and an oracle for the other engines. Multi-layer perceptrons alone.
 */
final class NumpyVariant extends EngineVariant {
  def name = "numpy"
  def doc = "NumPy alone, multi-layer perceptrons from scratch, in a Python process beside each worker"
  override def keys: Seq[Key[_]] = PythonEngine.keys

  def check(spec: ModelSpec, threads: Int, settings: Settings): Unit = {
    PythonEngine.check(name, spec, settings)
    NumpyVariant.refusal(spec).orElse(NumpyVariant.elsewhere(settings)).foreach { reason =>
      throw new ConfigurationException(reason)
    }
  }

  override def lacking(settings: Settings): Option[String] = PythonProcess.lacking(name, settings)

  def load(spec: ModelSpec, rows: Int, threads: Int, settings: Settings, vectors: VectorMemory): Engine =
    PythonEngine.load(name, spec, rows, threads, settings)

  def memory(spec: ModelSpec, rows: Int): EngineMemory = PythonEngine.memory(spec, rows, NumpyVariant.LibraryBytes)
}

private[python] object NumpyVariant {
  private val LibraryBytes = 128L << 20

  /** As in numpy.py, so that other models are refused before any job. */
  private val Kinds = Seq("linear", "relu", "tanh", "sigmoid", "flatten", "log-softmax")

  private def refusal(spec: ModelSpec): Option[String] =
    spec.layers.zip(spec.graph).zipWithIndex.collectFirst {
      case ((layer, inputs), index) if !Kinds.contains(layer.kind) || inputs != Seq(index) =>
        val read = if (layer.inputs.isEmpty) "the one before it" else layer.inputs.mkString(", ")
        s"The engine 'numpy' computes chains of ${Kinds.mkString(", ")}; layer '${layer.name}' is of kind '${layer.kind}' and reads $read. " +
          "Set engine.name=torch or libtorch."
    }

  private def elsewhere(settings: Settings): Option[String] = {
    val device = settings(EngineDevice.key)
    if (device == EngineDevice.Cpu) None
    else
      Some(
        s"engine.device=$device was asked for, and the engine 'numpy' has the CPU alone. Set engine.device=cpu, or engine.name=torch."
      )
  }
}
