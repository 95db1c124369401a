package sparkdlbench.model

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.ConfigurationException
import sparkdlbench.config.{RunKeys, Variants}

class ModelSpecSuite extends AnyFunSuite {
  private def settings(entries: (String, String)*) = RunKeysForTests.settings(entries: _*)

  test("the families are found by name") {
    assert(Variants.all[ModelFamily].map(_.name).containsSlice(Seq("mlp")))
    assert(Variants.find[ModelFamily]("model", "softmax").isInstanceOf[SoftmaxFamily])
    assert(RunKeys.all.map(_.name).contains("model.hidden"))
  }

  test("an MLP has one activation between linear layers and a dense layout, weight before bias") {
    val spec = new MlpFamily().build(Seq(4), 3, settings("model.hidden" -> "5,6", "model.activation" -> "tanh"))
    assert(spec.layers.map(_.name) == Seq("fc1", "tanh1", "fc2", "tanh2", "fc3"))
    assert(
      spec.layout == Seq(
        ParameterSpec("fc1.weight", Seq(5, 4), 0, "xavier-uniform"),
        ParameterSpec("fc1.bias", Seq(5), 20, "zero"),
        ParameterSpec("fc2.weight", Seq(6, 5), 25, "xavier-uniform"),
        ParameterSpec("fc2.bias", Seq(6), 55, "zero"),
        ParameterSpec("fc3.weight", Seq(3, 6), 61, "xavier-uniform"),
        ParameterSpec("fc3.bias", Seq(3), 79, "zero")
      )
    )
    assert(spec.parameterCount == 82)
    assert(spec.shapes == Seq(Seq(4), Seq(5), Seq(5), Seq(6), Seq(6), Seq(3)))
  }

  test("the MLP of the papers has 814,090 parameters for MNIST and a ReLU after He's initialiser") {
    val spec = new MlpFamily().build(Seq(1, 28, 28), 10, settings())
    assert(spec.parameterCount == 814090)
    assert(spec.layers.head.initializer == "he-uniform")
    assert(spec.layers(1).kind == "relu")
  }

  test("an MLP without hidden layers and a softmax regression are one linear layer that flattens its input") {
    val none = new MlpFamily().build(Seq(3, 2), 4, settings("model.hidden" -> ""))
    val softmax = new SoftmaxFamily().build(Seq(3, 2), 4, settings())
    assert(none.layout.map(_.shape) == Seq(Seq(4, 6), Seq(4)))
    assert(softmax.layout.map(_.shape) == none.layout.map(_.shape))
  }

  test("a specification survives JSON, and JSON states the layout") {
    val specs = Seq(
      new MlpFamily().build(Seq(1, 28, 28), 10, settings("model.hidden" -> "30,20")),
      new SoftmaxFamily().build(Seq(64), 10, settings()),
      ModelSpec(
        "odd \"name\" – ü",
        Seq(2),
        2,
        Seq(LayerSpec("l", "linear", Map("in" -> 2, "out" -> 2, "alpha" -> 0.25), "he-uniform"))
      )
    )
    specs.foreach(spec => assert(ModelSpec.fromJson(spec.toJson) == spec))
    assert(specs.head.toJson.contains(""""name":"fc2.weight","shape":[20,30],"offset":23550"""))
    assert(specs.head.toJson.contains(""""options":{"in":784,"out":30}"""))
  }

  test("text that is no specification is refused with the reason") {
    def message(json: String) = intercept[ConfigurationException](ModelSpec.fromJson(json)).getMessage
    assert(message("no json").contains("not JSON"))
    assert(message("").contains("not a JSON object"))
    assert(message("[1]").contains("not a JSON object"))
    assert(message("""{"name":"x"}""").contains("lacks the field 'layers'"))
    val spec = new SoftmaxFamily().build(Seq(3), 2, settings())
    assert(message(spec.toJson.replace("\"offset\":6", "\"offset\":7")).contains("its layers make"))
  }

  test("layers that do not fit together are refused before anything is computed") {
    val linear = LayerSpec("fc", "linear", Map("in" -> 5, "out" -> 2), "zero")
    def message(spec: ModelSpec) = intercept[ConfigurationException](spec.shapes).getMessage
    assert(message(ModelSpec("m", Seq(2, 3), 2, Seq(linear))).contains("expects rows of 5 values"))
    assert(message(ModelSpec("m", Seq(5), 3, Seq(linear))).contains("3 classes"))
    assert(
      message(ModelSpec("m", Seq(5), 2, Seq(linear.copy(kind = "conv9")))).contains("Valid kinds: linear, relu, tanh")
    )
    assert(
      message(ModelSpec("m", Seq(5), 2, Seq(linear.copy(options = Map("in" -> 5))))).contains("lacks its option 'out'")
    )
  }
}
