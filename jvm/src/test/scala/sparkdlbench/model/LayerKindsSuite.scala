package sparkdlbench.model

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException

class LayerKindsSuite extends AnyFunSuite {
  private def layer(kind: String, options: (String, Double)*) = LayerSpec("x", kind, options.toMap)
  private def shape(spec: LayerSpec, inputs: Seq[Int]*) = LayerKinds.outputShape(spec, inputs)
  private def message(body: => Any) = intercept[ConfigurationException](body).getMessage

  test("windows round down, or up as in Caffe") {
    assert(Window(3, 2, 0, ceil = false).size(32) == 15)
    assert(Window(3, 2, 0, ceil = true).size(32) == 16)
    assert(Window(2, 2, 0, ceil = true).size(7) == 4)
    assert(Window(3, 2, 1, ceil = true).size(7) == 4)
    assert(Window(1, 3, 0, ceil = true).size(5) == 2)
    assert(Window(1, 2, 1, ceil = true).size(3) == 2)
    assert(Window(5, 1, 0, ceil = false).size(4) == 0)
  }

  test("convolutions") {
    val conv = layer("conv2d", "in" -> 4, "out" -> 6, "kernel" -> 3, "stride" -> 2, "padding" -> 1, "groups" -> 2)
    assert(shape(conv, Seq(4, 9, 10)) == Seq(6, 5, 5))
    assert(LayerKinds.parameterShapes(conv) == Seq("weight" -> Seq(6, 2, 3, 3), "bias" -> Seq(6)))
    assert(LayerKinds.flops(conv, Seq(Seq(4, 9, 10)), Seq(6, 5, 5)) == 2L * 6 * 2 * 9 * 25)
    assert(message(shape(conv, Seq(3, 9, 10))).contains("set in to 3"))
    assert(message(shape(conv, Seq(36))).contains("three dimensions"))
    assert(
      message(LayerKinds.parameterShapes(conv.copy(options = conv.options + ("groups" -> 3.0)))).contains("groups=3")
    )
  }

  test("pooling, normalisation and joins") {
    assert(shape(layer("max-pool", "kernel" -> 2), Seq(3, 8, 8)) == Seq(3, 4, 4))
    assert(shape(layer("global-avg-pool"), Seq(3, 8, 8)) == Seq(3))
    assert(shape(layer("batch-norm", "channels" -> 3), Seq(3, 8, 8)) == Seq(3, 8, 8))
    assert(shape(layer("batch-norm", "channels" -> 5), Seq(5)) == Seq(5))
    assert(shape(layer("concat"), Seq(3, 8, 8), Seq(2, 8, 8)) == Seq(5, 8, 8))
    assert(shape(layer("add"), Seq(3, 8, 8), Seq(3, 8, 8)) == Seq(3, 8, 8))
    assert(shape(layer("flatten"), Seq(3, 8, 8)) == Seq(192))
    assert(message(shape(layer("max-pool", "kernel" -> 3, "padding" -> 2), Seq(3, 8, 8))).contains("padding=2"))
    assert(message(shape(layer("batch-norm", "channels" -> 4), Seq(3, 8, 8))).contains("set channels to 3"))
    assert(message(shape(layer("local-response-norm", "size" -> 4), Seq(3, 8, 8))).contains("odd"))
    assert(message(shape(layer("concat"), Seq(3, 8, 8), Seq(2, 8, 7))).contains("3×8×8 and 2×8×7"))
    assert(message(shape(layer("add"), Seq(3, 8, 8), Seq(2, 8, 8))).contains("must be equal"))
    assert(message(shape(layer("add"), Seq(3, 8, 8))).contains("has 1 inputs"))
  }

  test("options that do not exist or are not valid are refused by name") {
    assert(message(shape(layer("max-pool", "kernal" -> 2), Seq(3, 8, 8))).contains("Did you mean 'kernel'?"))
    assert(message(shape(layer("max-pool", "kernel" -> 2.5), Seq(3, 8, 8))).contains("kernel=2.5"))
    assert(message(shape(layer("max-pool", "kernel" -> 2, "ceil" -> 2), Seq(3, 8, 8))).contains("0 or 1"))
    assert(message(shape(layer("dropout", "rate" -> 1), Seq(3))).contains("rate=1.0"))
    assert(message(shape(layer("relu", "slope" -> 1), Seq(3))).contains("Its options: none"))
  }

  test("a graph's names must be there, once, and every output be read") {
    def graph(layers: LayerSpec*) = ModelSpec("net", Seq(4), 4, layers).graph
    val (a, b) = (LayerSpec("a", "relu"), LayerSpec("b", "tanh"))
    assert(
      graph(a, b.copy(inputs = Seq("input")), LayerSpec("c", "add", inputs = Seq("a", "b"))) == Seq(
        Seq(0),
        Seq(0),
        Seq(1, 2)
      )
    )
    assert(message(graph(a, a)).contains("two layers called 'a'"))
    assert(message(graph(a.copy(inputs = Seq("b")), b)).contains("reads 'b'"))
    assert(message(graph(a, b.copy(inputs = Seq("input")))).contains("reads the output of 'a'"))
    assert(message(graph()).contains("no layers"))
  }
}
