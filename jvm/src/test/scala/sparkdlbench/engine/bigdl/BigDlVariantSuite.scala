package sparkdlbench.engine.bigdl

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.Variants
import sparkdlbench.engine.EngineVariant
import sparkdlbench.engine.libtorch.BigDlJars
import sparkdlbench.model.{LayerKinds, LayerSpec, ModelSpec, ParityModels, RunKeysForTests}

/** What the engine refuses, with which reason; that it computes rightly is `BigDlParitySuite`'s. */
class BigDlVariantSuite extends AnyFunSuite {
  private val engine = Variants.find[EngineVariant]("engine", "bigdl")
  private val settings = RunKeysForTests.settings("engine.name" -> "bigdl")
  private val cnn = ParityModels.family("cnn", Seq(1, 28, 28))
  private val vgg = ParityModels.family("vgg-16", Seq(3, 32, 32))

  private def refusal(spec: ModelSpec, threads: Int = 1): String =
    intercept[ConfigurationException](engine.check(spec, threads, settings)).getMessage

  test("Spark 4 is refused: BigDL is built for Scala 2.12") {
    assume(!BigDlJars.fit, "this is Spark 3.5")
    assert(refusal(cnn).contains("needs Spark 3.5"))
    assert(intercept[ConfigurationException](engine.load(cnn, 4, 1, settings)).getMessage.contains("needs Spark 3.5"))
  }

  test("it takes every model, and refuses several threads and layers that it lacks") {
    assume(BigDlJars.fit, "this is Spark 4")
    ParityModels.all.foreach(model => engine.check(model.spec, 1, settings))
    assert(refusal(cnn, threads = 2).contains("engine.threads=1"))
    val unknown = refusal(cnn.copy(layers = cnn.layers :+ LayerSpec("last", "gelu")))
    assert(unknown.contains("no layer of kind 'gelu' (layer 'last')") && unknown.contains("batch-norm"), unknown)
  }

  test("batch normalisation over all workers' rows is refused with the reason") {
    assume(BigDlJars.fit, "this is Spark 4")
    val layers = vgg.layers.map { layer =>
      if (layer.name == "bn2_1") layer.copy(options = layer.options + ("sync" -> 1.0)) else layer
    }
    val reason = refusal(vgg.copy(layers = layers))
    assert(reason.contains("layer 'bn2_1' of kind 'batch-norm'"), reason)
    assert(reason.contains("model.sync_batch_norm=false, or engine.name=libtorch."), reason)
  }

  test("pooling whose size BigDL would get wrong is refused with both sizes, and no other") {
    assume(BigDlJars.fit, "this is Spark 4")
    def pooled(height: Int, width: Int, options: (String, Int)*): ModelSpec = {
      val pool = LayerSpec("pool", "avg-pool", options.map { case (name, value) => name -> value.toDouble }.toMap)
      val shape = LayerKinds.outputShape(pool, Seq(Seq(1, height, width)))
      val linear = LayerSpec("fc", "linear", Map("in" -> shape.product.toDouble, "out" -> 2.0), "zero")
      ModelSpec("pooled", Seq(1, height, width), 2, Seq(pool, linear))
    }
    val narrow = Seq("kernel" -> 3, "stride" -> 2, "ceil" -> 1)
    assert(refusal(pooled(6, 7, narrow: _*)).contains("on rows of 6×7 BigDL would give 2×3 values"))
    assert(refusal(pooled(5, 5, "kernel" -> 1, "stride" -> 3, "ceil" -> 1)).contains("BigDL would give 3×3 values"))
    val right = Seq(
      pooled(7, 6, narrow: _*),
      pooled(6, 6, narrow: _*),
      pooled(7, 7, narrow: _*),
      pooled(6, 7, narrow :+ ("padding" -> 1): _*),
      pooled(6, 7, "kernel" -> 3, "stride" -> 2)
    )
    right.foreach(engine.check(_, 1, settings))
  }

  test("its memory has a gradient of each convolution's weights for every row") {
    val rows = 32
    val weights = vgg.layout.filter(each => each.name.startsWith("conv")).map(_.length.toLong).sum
    assert(engine.memory(vgg, rows).heap - engine.memory(vgg, 0).heap > 4 * rows * weights)
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
