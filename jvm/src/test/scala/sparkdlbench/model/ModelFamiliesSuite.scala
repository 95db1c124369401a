package sparkdlbench.model

import org.scalatest.funsuite.AnyFunSuite

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Files
import sparkdlbench.common.ConfigurationException

class ModelFamiliesSuite extends AnyFunSuite {
  private def build(name: String, shape: Seq[Int], classes: Int, settings: (String, String)*): ModelSpec =
    sparkdlbench.config.Variants
      .find[ModelFamily]("model", name)
      .build(shape, classes, RunKeysForTests.settings(settings: _*))

  /** As the sources state them; see docs/reference/models.md. */
  private val parameters: Seq[(String, Seq[Int], Int, Int)] = Seq(
    ("softmax", Seq(1, 28, 28), 10, 7850),
    ("mlp", Seq(1, 28, 28), 10, 814090),
    ("mlp", Seq(3, 32, 32), 10, 3157002),
    ("lenet", Seq(1, 28, 28), 10, 431080),
    ("cnn", Seq(1, 28, 28), 10, 431080),
    ("cifar-quick", Seq(3, 32, 32), 10, 145578),
    ("resnet-18", Seq(1, 28, 28), 10, 11172810),
    ("resnet-18", Seq(3, 32, 32), 10, 11173962),
    ("vgg-16", Seq(3, 32, 32), 10, 14991946),
    ("alexnet", Seq(3, 224, 224), 1000, 60965224),
    ("alexnet", Seq(3, 227, 227), 1000, 60965224),
    ("googlenet", Seq(3, 224, 224), 1000, 6998552),
    ("resnet-50", Seq(3, 224, 224), 1000, 25557032)
  )

  for ((name, shape, classes, count) <- parameters)
    test(s"$name has $count parameters for ${shape.mkString("×")} and $classes classes") {
      val spec = build(name, shape, classes)
      assert(spec.parameterCount == count)
      assert(spec.shapes.last.product == classes)
    }

  test("mlp 784-100-50-10, the small one of conf/runs, has 84060 parameters") {
    val spec = build("mlp", Seq(1, 28, 28), 10, "model.hidden" -> "100,50")
    assert(spec.parameterCount == 84060 && spec.shapes.last == Seq(10))
  }

  test("shapes inside the nets are the sources'") {
    def shape(spec: ModelSpec, layer: String) = spec.shapes(spec.layers.indexWhere(_.name == layer) + 1)
    val lenet = build("lenet", Seq(1, 28, 28), 10)
    assert(
      Seq("conv1", "pool1", "conv2", "pool2").map(shape(lenet, _)) ==
        Seq(Seq(20, 24, 24), Seq(20, 12, 12), Seq(50, 8, 8), Seq(50, 4, 4))
    )
    val quick = build("cifar-quick", Seq(3, 32, 32), 10)
    assert(Seq("pool1", "pool2", "pool3").map(shape(quick, _)) == Seq(Seq(32, 16, 16), Seq(32, 8, 8), Seq(64, 4, 4)))
    val alex = build("alexnet", Seq(3, 227, 227), 1000)
    assert(
      Seq("conv1", "pool1", "pool2", "pool5").map(shape(alex, _)) ==
        Seq(Seq(96, 55, 55), Seq(96, 27, 27), Seq(256, 13, 13), Seq(256, 6, 6))
    )
    val google = build("googlenet", Seq(3, 224, 224), 1000)
    assert(
      Seq("inception_3a/output", "inception_4e/output", "inception_5b/output").map(shape(google, _)) ==
        Seq(Seq(256, 28, 28), Seq(832, 14, 14), Seq(1024, 7, 7))
    )
    val residual = build("resnet-50", Seq(3, 224, 224), 1000)
    assert(
      Seq("maxpool", "layer1.2.relu", "layer4.2.relu").map(shape(residual, _)) ==
        Seq(Seq(64, 56, 56), Seq(256, 56, 56), Seq(2048, 7, 7))
    )
  }

  test("floating-point operations are the known ones, a multiplication and its addition counted as two") {
    assert(build("mlp", Seq(784), 10).flops == 2 * (784 * 1024 + 1024 * 10) + 1024)
    // 4.09 G multiply-adds by torchvision's count.
    assert((build("resnet-50", Seq(3, 224, 224), 1000).flops / (2 * 4.09e9) - 1).abs < 0.02)
  }

  test("the largest nets are built in a moment and keep their statistics apart") {
    val spec = build("resnet-50", Seq(3, 224, 224), 1000)
    assert(spec.statisticsCount == 2 * 26560)
    assert(spec.statistics.head == ParameterSpec("bn1.running_mean", Seq(64), 0, "zero"))
    assert(ModelSpec.fromJson(spec.toJson) == spec)
  }

  test("model.dropout is the rate of every dropout layer, and refused where there is none") {
    def of(name: String, rate: String) =
      ModelFamily.of(RunKeysForTests.settings("model.name" -> name, "model.dropout" -> rate), Seq(3, 32, 32), 10)
    def rates(rate: String) = of("vgg-16", rate).layers.filter(_.kind == "dropout").map(DropoutKind.rate)
    assert(rates("auto") == Seq(0.3, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.4, 0.5, 0.5))
    assert(rates("0.1") == Seq.fill(10)(0.1) && rates("0") == Seq.fill(10)(0.0))
    assert(of("vgg-16", "0").parameterCount == 14991946 && !of("vgg-16", "0").layers.exists(DropoutKind.drops))
    val none = intercept[ConfigurationException](of("cifar-quick", "0")).getMessage
    assert(none.contains("'cifar-quick' has no layer of kind 'dropout'") && none.contains("model.dropout=auto"), none)
    val one = intercept[ConfigurationException](of("vgg-16", "1")).getMessage
    assert(one.contains("model.dropout") && one.contains("auto, a number from 0 to below 1"), one)
  }

  test("image models refuse flat rows, and rows that are too small") {
    assert(intercept[ConfigurationException](build("lenet", Seq(784), 10)).getMessage.contains("needs images"))
    assert(
      intercept[ConfigurationException](build("lenet", Seq(1, 8, 8), 10)).getMessage
        .contains("larger than what it slides over")
    )
  }

  test("a model of the user's own comes from TOML or JSON") {
    val toml =
      """name = "mine"
        |input_shape = [1, 6, 6]
        |classes = 3
        |[[layers]]
        |name = "conv"
        |kind = "conv2d"
        |options = { in = 1, out = 4, kernel = 3, padding = 1, bias = false }
        |initializer = "he-normal"
        |[[layers]]
        |name = "branch"
        |kind = "relu"
        |[[layers]]
        |name = "sum"
        |kind = "add"
        |inputs = ["conv", "branch"]
        |[[layers]]
        |name = "fc"
        |kind = "linear"
        |options = { in = 144, out = 3 }
        |initializer = "gaussian-0.01"
        |bias_initializer = "constant-0.5"
        |""".stripMargin
    val path = Files.createTempFile("model", ".toml")
    val json = Files.createTempFile("model", ".json")
    try {
      Files.write(path, toml.getBytes(UTF_8))
      val spec = build("file", Seq(1, 6, 6), 3, "model.spec" -> path.toString)
      assert(spec.parameterCount == 36 + 144 * 3 + 3)
      assert(spec.graph == Seq(Seq(0), Seq(1), Seq(1, 2), Seq(3)))
      assert(spec.layout.last.initializer == "constant-0.5")
      Files.write(json, spec.toJson.getBytes(UTF_8))
      assert(build("file", Seq(36), 3, "model.spec" -> json.toString) == spec)
      assert(
        intercept[ConfigurationException](build("file", Seq(1, 6, 6), 4, "model.spec" -> path.toString)).getMessage
          .contains("3 classes")
      )
      Files.write(path, toml.replace("initializer = \"he-normal\"", "initialiser = \"he-normal\"").getBytes(UTF_8))
      val message =
        intercept[ConfigurationException](build("file", Seq(36), 3, "model.spec" -> path.toString)).getMessage
      assert(message.contains(path.toString) && message.contains("Did you mean 'initializer'?"))
    } finally { Files.delete(path); Files.delete(json) }
    assert(intercept[ConfigurationException](build("file", Seq(36), 3)).getMessage.contains("model.spec"))
    assert(
      intercept[ConfigurationException](build("file", Seq(36), 3, "model.spec" -> "/no/such.toml")).getMessage
        .contains("/no/such.toml")
    )
  }
}
