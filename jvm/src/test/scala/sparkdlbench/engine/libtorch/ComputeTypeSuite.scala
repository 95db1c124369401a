package sparkdlbench.engine.libtorch

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException
import sparkdlbench.model.{ParityModels, RunKeysForTests}

import java.nio.file.{Files, Path, Paths}

class ComputeTypeSuite extends AnyFunSuite {
  private def withFile(text: String)(body: Path => Unit): Unit = {
    val file = Files.createTempFile("cpuinfo", "")
    try { Files.write(file, text.getBytes); body(file) }
    finally Files.delete(file)
  }

  test("a CPU has bf16 when Linux says so") {
    withFile("flags : fpu avx512f avx512_bf16 sse")(file => assert(ComputeType.supports(file)))
    withFile("flags : fpu avx512f sse")(file => assert(!ComputeType.supports(file)))
    assert(!ComputeType.supports(Paths.get("/no/such/file")))
  }

  private val settings = Seq("engine.compute" -> "bf16")

  test("bf16 is refused where the CPU lacks it, and near fp32 where it is there") {
    if (!ComputeType.supports(Paths.get("/proc/cpuinfo")))
      assert(
        intercept[ConfigurationException](ComputeType.isBf16(RunKeysForTests.settings(settings: _*))).getMessage
          .contains("fp32")
      )
    else
      Seq("mlp-784-1024-10", "lenet", "every-layer").foreach { name =>
        val model = ParityModels.all.find(_.name == name).get
        val data = ParityModels.batch(model.spec, model.rows, 0)
        def gradient(more: Seq[(String, String)]) = {
          val engine = EngineFixture.load(model.spec, model.rows, settings = more)
          try {
            if (more.nonEmpty) assert(engine.facts("compute") == "bf16")
            EngineFixture.gradient(engine, data, 1f / model.rows).map(_.toDouble)
          } finally engine.close()
        }
        val (exact, rounded) = (gradient(Nil), gradient(settings))
        val difference = math.sqrt(exact.zip(rounded).map { case (a, b) => (a - b) * (a - b) }.sum)
        val share = difference / math.sqrt(exact.map(a => a * a).sum)
        assert(share > 1e-5 && share < 0.1, s"$name: bf16 gradients differ by $share of their norm")
      }
  }
}
