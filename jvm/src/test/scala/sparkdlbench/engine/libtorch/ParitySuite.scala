package sparkdlbench.engine.libtorch

import sparkdlbench.{OnOneLine, TakesLong}
import sparkdlbench.model.{ModelSpec, ParityModels}

/** Loss and gradients of every model against PyTorch's in double precision, with each BLAS and without oneDNN. */
class ParitySuite extends OnOneLine {
  import Parity.{compare, golden, probe}

  for (model <- ParityModels.all)
    test(s"${model.name} is the model that the golden file was made for") {
      val file = golden(model.name)
      assert(ModelSpec.fromJson(file.path("model").toString) == model.spec)
      assert(file.path("rows").asInt == model.rows && file.path("learning_rate").asDouble == model.learningRate)
    }

  private val engines: Seq[(String, Seq[String])] = Seq(
    "MKL" -> Seq("engine.blas=mkl"),
    "OpenBLAS" -> Seq("engine.blas=openblas"),
    "OpenBLAS without oneDNN" -> Seq("engine.blas=openblas", "engine.onednn=off")
  )

  for ((name, settings) <- engines)
    test(s"loss, gradients and 20 losses are PyTorch's: $name", TakesLong) {
      val isX86 = NativeJars.platform.endsWith("x86_64")
      assume(isX86 || !name.contains("MKL"), s"MKL exists for x86-64 alone, this is ${NativeJars.platform}")
      val lines = probe(settings)
      val facts = lines.head
      settings.foreach { setting =>
        val (key, value) = (setting.takeWhile(_ != '='), setting.dropWhile(_ != '=').drop(1))
        assert(facts.path(key.stripPrefix("engine.")).asText == value, facts)
      }
      assert(lines.tail.map(_.path("name").asText) == ParityModels.all.map(_.name))
      lines.tail.foreach(compare)
    }
}
