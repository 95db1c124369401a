package sparkdlbench.train

import org.apache.spark.SparkContext
import org.apache.spark.broadcast.Broadcast
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{CheckpointKeys, Key, KeyGroup, Settings}
import sparkdlbench.model.ModelSpec
import sparkdlbench.results.SavedModel

import java.nio.file.{Files, Path, Paths}

/** Weights from a file that a run starts from, in place of those that its model's initialisers make (`model.initial_weights`). */
object InitialWeights {
  val path: Key[String] = Key.text(
    "model.initial_weights",
    "",
    "Path, on the driver's host, of the weights to start from: the folder of a saved model or its weights.npz; from Python also .safetensors, .pt and .onnx"
  )

  /**
   * The parameters and the running statistics, flat, in the layouts of `spec`, for the executors; None where the initialisers make them.
   * A run that resumes takes those of its checkpoint and reads no file.
   */
  private[train] def of(settings: Settings, spec: ModelSpec, sc: SparkContext): Option[Broadcast[Array[Array[Float]]]] =
    Option(settings(path)).filter(file => file.nonEmpty && settings(CheckpointKeys.resume).isEmpty).map { file =>
      val (weights, statistics) = read(Paths.get(file), spec)
      sc.broadcast(Array(weights, statistics))
    }

  private[train] def read(named: Path, spec: ModelSpec): (Array[Float], Array[Float]) = {
    val file = if (Files.isDirectory(named)) named.resolve("weights.npz") else named
    if (!file.toString.endsWith(".npz"))
      throw new ConfigurationException(
        s"model.initial_weights names '$named', and without Python a run reads the folder of a saved model or an archive of NumPy (.npz) alone. " +
          "Start it with `sparkdl-bench run` or a Trainer in Python, which read .safetensors, .pt and .onnx as well, or name a file of weights as .npz."
      )
    if (!Files.isRegularFile(file))
      throw new ConfigurationException(
        s"There is no file '$file' (model.initial_weights). Name the folder of a saved model, or a file of weights, on the driver's host."
      )
    SavedModel.readWeights(file, spec)
  }
}

final class InitialWeightsKeys extends KeyGroup {
  def keys: Seq[Key[_]] = Seq(InitialWeights.path)
}
