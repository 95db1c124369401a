package sparkdlbench.model

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException
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

  test("a model of ten billion parameters is refused with the numbers") {
    val spec = new MlpFamily().build(Seq(1, 28, 28), 10, settings("model.hidden" -> "100000,100000"))
    val told = intercept[ConfigurationException](spec.parameterCount).getMessage
    assert(told.contains("10,079,600,010 parameters, 37.5 GiB"), told)
    assert(told.contains("at most 2,147,483,647 fit. Its largest part is fc2.weight of 100000 × 100000"), told)
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
      message(ModelSpec("m", Seq(5), 2, Seq(linear.copy(kind = "conv9")))).contains("Valid kinds: add, avg-pool")
    )
    assert(
      message(ModelSpec("m", Seq(5), 2, Seq(linear.copy(options = Map("in" -> 5))))).contains("lacks its option 'out'")
    )
  }

  test("each parameter tensor may have factors of learning rate and weight decay") {
    val options =
      Map("in" -> 5.0, "out" -> 2.0, "weight_decay_mult" -> 0.5, "bias_lr_mult" -> 2.0, "bias_decay_mult" -> 0.0)
    val spec = ModelSpec("m", Seq(5), 2, Seq(LayerSpec("fc", "linear", options, "zero")))
    assert(spec.shapes.last == Seq(2))
    assert(spec.layout.map(tensor => (tensor.rate, tensor.decay)) == Seq((1.0, 0.5), (2.0, 0.0)))
    assert(ModelSpec.fromJson(spec.toJson) == spec)
    assert(spec.toJson.contains(""""offset":10,"initializer":"zero","lr_mult":2,"decay_mult":0"""))
    def message(change: (String, Double)*) = intercept[ConfigurationException] {
      val changed = ModelSpec("m", Seq(5), 2, Seq(LayerSpec("fc", "linear", options ++ change, "zero")))
      changed.shapes
      changed.layout
    }.getMessage
    assert(message("bias_lr_mul" -> 2).contains("bias_lr_mult"))
    assert(message("bias" -> 0).contains("'bias_decay_mult', which that kind does not know"))
    assert(message("bias_lr_mult" -> -1).contains("bias_lr_mult=-1.0"))
  }

  test("Caffe's nets train biases at twice the rate, the large ones without decay; other nets as weights") {
    def factors(name: String, shape: Seq[Int]) = ParityModels
      .family(name, shape)
      .layout
      .map { tensor =>
        (tensor.name.endsWith(".bias"), tensor.rate, tensor.decay)
      }
      .toSet
    for ((name, shape) <- Seq("lenet" -> Seq(1, 28, 28), "cifar-quick" -> Seq(3, 32, 32)))
      assert(factors(name, shape) == Set((false, 1.0, 1.0), (true, 2.0, 1.0)), name)
    for (name <- Seq("alexnet", "googlenet"))
      assert(factors(name, Seq(3, 224, 224)) == Set((false, 1.0, 1.0), (true, 2.0, 0.0)), name)
    for (name <- Seq("mlp", "cnn", "resnet-18"))
      assert(factors(name, Seq(1, 28, 28)).forall { case (_, rate, decay) => rate == 1 && decay == 1 }, name)
  }
}
