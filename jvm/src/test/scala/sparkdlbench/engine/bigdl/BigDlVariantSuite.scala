package sparkdlbench.engine.bigdl

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.ConfigurationException
import sparkdlbench.config.Variants
import sparkdlbench.engine.EngineVariant
import sparkdlbench.engine.libtorch.BigDlJars
import sparkdlbench.model.{LayerSpec, ModelSpec, ParityModels, RunKeysForTests}

/** What the engine refuses, with which reason; that it computes rightly is `ParitySuite`'s. */
class BigDlVariantSuite extends AnyFunSuite {
  private val engine = Variants.find[EngineVariant]("engine", "bigdl")
  private val settings = RunKeysForTests.settings("engine.name" -> "bigdl")
  private val cnn = ParityModels.family("cnn", Seq(1, 28, 28))

  private def refusal(spec: ModelSpec, threads: Int = 1): String =
    intercept[ConfigurationException](engine.check(spec, threads, settings)).getMessage

  test("Spark 4 is refused: BigDL is built for Scala 2.12") {
    assume(!BigDlJars.fit, "this is Spark 3.5")
    assert(refusal(cnn).contains("needs Spark 3.5"))
    assert(intercept[ConfigurationException](engine.load(cnn, 4, 1, settings)).getMessage.contains("needs Spark 3.5"))
  }

  test("layers that it lacks, graphs that are no chains, and several threads are refused with the reason") {
    assume(BigDlJars.fit, "this is Spark 4")
    engine.check(cnn, 1, settings)
    assert(refusal(cnn, threads = 2).contains("engine.threads=1"))
    assert(refusal(ParityModels.family("vgg-16", Seq(3, 32, 32))).contains("'batch-norm'"))
    val dropout = cnn.copy(layers = LayerSpec("drop", "dropout") +: cnn.layers)
    assert(refusal(dropout).contains("draws masks of its own"))
    val linear = Map("in" -> 4.0, "out" -> 4.0)
    val joined = ModelSpec(
      "joined",
      Seq(4),
      4,
      Seq(
        LayerSpec("a", "linear", linear, "zero"),
        LayerSpec("b", "relu"),
        LayerSpec("c", "add", inputs = Seq("a", "b"))
      )
    )
    assert(refusal(joined).contains("(layer 'c'): it computes chains of layers"))
  }

  test("device, numbers and matrix library that it does not have are refused, and its own are not") {
    def unheard(entries: (String, String)*) =
      BigDlVariant.unheard(RunKeysForTests.settings(("engine.name" -> "bigdl") +: entries: _*))
    val wrong = Seq(
      "engine.device" -> "cuda",
      "engine.compute" -> "bf16",
      "engine.blas" -> "openblas",
      "engine.cbwr" -> "avx2"
    )
    for ((key, value) <- wrong) {
      val reason = unheard(key -> value).get
      assert(reason.startsWith(s"$key=$value was asked for") && reason.contains("engine.name=libtorch"), reason)
      if (BigDlJars.fit) {
        val asked = RunKeysForTests.settings("engine.name" -> "bigdl", key -> value)
        assert(intercept[ConfigurationException](engine.check(cnn, 1, asked)).getMessage == reason)
      }
    }
    assert(unheard().isEmpty)
    assert(unheard("engine.device" -> "cpu", "engine.compute" -> "fp32", "engine.blas" -> "mkl").isEmpty)
  }

  test("without BigDL's jars it says what to install") {
    assume(BigDlJars.fit, "this is Spark 4")
    val message = intercept[ConfigurationException](engine.load(cnn, 4, 1, settings)).getMessage
    assert(message.contains("sparkdl-bench peers install bigdl"), message)
  }
}
