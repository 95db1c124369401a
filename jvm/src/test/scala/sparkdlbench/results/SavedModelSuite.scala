package sparkdlbench.results

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException
import sparkdlbench.data.{Normalization, RowInput}
import sparkdlbench.engine.libtorch.EngineFixture

import java.lang.management.ManagementFactory
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path}

class SavedModelSuite extends AnyFunSuite {
  private val spec = EngineFixture.mlp(inputs = 3, hidden = "5", classes = 4)
  private val weights = Array.tabulate(spec.parameterCount)(i => i * 0.1f - 1)
  private val change = Normalization.Change(Array(0.1f, -2f, 1e-7f), Array(3f, 0.3333333f, 1f))
  private val input = RowInput(Seq(3), Seq("a", "b, c", "ü"), 1 / 255.0, 0, Seq("x", "y", "z", "-1"), Some(change))

  private def written(): Path = {
    val folder = Files.createTempDirectory("saved-model")
    ModelFolder.write(folder, SavedModel(spec, weights, Array.empty, input))
    folder
  }

  private def refusal(folder: Path): String = {
    val message = intercept[ConfigurationException](SavedModel.read(folder)).getMessage
    assert(message.contains("holds no saved model") && !message.contains('\n'), message)
    message
  }

  test("a model comes back with all its bits") {
    val read = SavedModel.read(written())
    assert(read.spec == spec && read.weights.toSeq == weights.toSeq && read.statistics.isEmpty)
    assert(read.input.copy(change = None) == input.copy(change = None))
    val found = read.input.change.get
    assert(found.subtract.toSeq == change.subtract.toSeq && found.factor.toSeq == change.factor.toSeq)
  }

  test("a folder of a version without input.json takes rows as the model has them") {
    val folder = written()
    Files.delete(folder.resolve("input.json"))
    assert(SavedModel.read(folder).input == RowInput(Seq(3)))
  }

  test("what is not whole, or does not fit the model, is refused") {
    assert(refusal(Files.createTempDirectory("empty")).contains("model.json"))
    val cut = written()
    val bytes = Files.readAllBytes(cut.resolve("weights.npz"))
    Files.write(cut.resolve("weights.npz"), bytes.take(bytes.length / 2))
    refusal(cut)
    for (
      (text, said) <- Seq(
        "{" -> "is not JSON",
        """{"shape": [4]}""" -> "rows of 4 values",
        """{"shape": [3], "labels": ["a"]}""" -> "1 names of classes",
        """{"shape": [3], "subtract": [1], "multiply": [1]}""" -> "normalises 1 and 1 values",
        """{"shape": [65537, 65535, 3]}""" -> "has the shape",
        """{"shape": ["3"]}""" -> "no list of numbers",
        """{"shape": [3], "factor": "0.5"}""" -> "no number as factor",
        """{"shape": []}""" -> "has the shape"
      )
    ) {
      val folder = written()
      Files.write(folder.resolve("input.json"), text.getBytes(UTF_8))
      assert(refusal(folder).contains(said))
    }
    val other = written()
    val wider = EngineFixture.mlp(inputs = 3, hidden = "6", classes = 4)
    Files.write(other.resolve("model.json"), wider.toJson.getBytes(UTF_8))
    assert(refusal(other).contains("'fc1.weight' in weights.npz is"))
  }

  test("a model.json that says much is refused before memory is taken for it") {
    val folder = written()
    val huge = EngineFixture.mlp(inputs = 3, hidden = "250000000", classes = 4)
    Files.write(folder.resolve("model.json"), huge.toJson.getBytes(UTF_8))
    val threads = ManagementFactory.getThreadMXBean.asInstanceOf[com.sun.management.ThreadMXBean]
    def taken = threads.getThreadAllocatedBytes(Thread.currentThread.getId)
    val before = taken
    assert(refusal(folder).contains("'fc1.weight' in weights.npz has"))
    assert(taken - before < (64 << 20))
  }
}
