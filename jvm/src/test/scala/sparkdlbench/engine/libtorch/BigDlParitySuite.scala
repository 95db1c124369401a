package sparkdlbench.engine.libtorch

import org.scalatest.funsuite.AnyFunSuite

/** The same as `ParitySuite` for BigDL's layers, which exist on Spark 3.5 alone. */
class BigDlParitySuite extends AnyFunSuite {
  test("loss, gradients and 20 losses are PyTorch's") {
    assume(BigDlJars.fit, "BigDL's jars are for Scala 2.12, on Spark 3.5")
    val jars = BigDlJars.found
    assume(jars.nonEmpty, "BigDL's jars are not here: sparkdl-bench peers install bigdl")
    val lines = Parity.probe(Seq("engine.name=bigdl"), jars)
    assert(lines.head.path("engine").asText == "bigdl" && lines.head.path("bigdl.jar").asText.contains("2.4.0"))
    val names =
      Seq("softmax", "mlp-784-1024-10", "mlp-3072-1024-10", "mlp-784-100-50-10", "lenet", "cnn", "cifar-quick")
    assert(lines.tail.map(_.path("name").asText) == names)
    lines.tail.foreach(Parity.compare)
  }
}
