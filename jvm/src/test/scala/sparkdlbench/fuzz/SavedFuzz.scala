package sparkdlbench.results
package fuzz

import sparkdlbench.data.RowInput
import sparkdlbench.fuzz.FuzzTarget
import sparkdlbench.model.{LayerSpec, ModelSpec}

import java.nio.file.{Files, Path}

/** A saved model's folder, of which the input is one file. */
abstract class SavedTarget(name: String, file: String) extends FuzzTarget(name) {
  private lazy val folder: Path = FuzzTarget.folder()
  private val spec = ModelSpec(
    "net",
    Seq(3),
    2,
    Seq(LayerSpec("l", "linear", Map("in" -> 3.0, "out" -> 2.0), "xavier-uniform"))
  )
  private lazy val good: Map[String, Array[Byte]] = {
    ModelFolder.write(
      folder,
      SavedModel(spec, Array.tabulate(spec.parameterCount)(_.toFloat), Array.emptyFloatArray, RowInput(spec.inputShape))
    )
    Seq("model.json", ModelFolder.InputFile, "weights.npz")
      .map(name => name -> Files.readAllBytes(folder.resolve(name)))
      .toMap
  }
  def seeds: Seq[Array[Byte]] = Seq(good(file))
  protected def read(input: Array[Byte]): Unit = {
    good.foreach { case (other, content) => Files.write(folder.resolve(other), if (other == file) input else content) }
    val saved = SavedModel.read(folder)
    if (saved.weights.length != saved.spec.parameterCount) throw new AssertionError("weights of another model")
  }
}

object SavedWeightsFuzz extends SavedTarget("saved-weights", "weights.npz")
object SavedInputFuzz extends SavedTarget("saved-input", ModelFolder.InputFile)
object SavedSpecFuzz extends SavedTarget("saved-model", "model.json")
