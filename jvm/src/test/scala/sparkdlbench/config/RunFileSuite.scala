package sparkdlbench.config

import org.scalatest.funsuite.AnyFunSuite

import java.nio.file.Files
import sparkdlbench.common.ConfigurationException

class RunFileSuite extends AnyFunSuite {
  private def file(text: String): String = {
    val path = Files.createTempDirectory("run-file").resolve("small-net.toml")
    Files.writeString(path, text)
    path.toString
  }

  private val example = file("""
      |workers = 2
      |[model]
      |name = "mlp"
      |hidden = [100, 50]
      |[optimizer]
      |learning_rate = 0.5
      |[spark]
      |master = "local[2]"
      |"spark.executor.memory" = "2g"
      |""".stripMargin)

  test("tables become dotted keys, lists commas, and [spark] stays apart") {
    val run = RunFile.read(example)
    assert(
      run.settings === Map(
        "name" -> "small-net",
        "workers" -> "2",
        "model.name" -> "mlp",
        "model.hidden" -> "100,50",
        "optimizer.learning_rate" -> "0.5"
      )
    )
    assert(run.spark === Map("master" -> "local[2]", "spark.executor.memory" -> "2g"))
  }

  test("assignments change settings, the master and Spark's own keys") {
    val run = Seq("workers=4", "master=local[4]", "spark.executor.memory=1g", "spark.sparkdl.engine.blas=openblas")
      .foldLeft(RunFile.read(example))(_ set _)
    assert(run.settings("workers") === "4")
    assert(run.settings("engine.blas") === "openblas")
    assert(run.spark === Map("master" -> "local[4]", "spark.executor.memory" -> "1g"))
  }

  test("[spark] is a table of the master and Spark's own keys alone") {
    def refusal(text: String) = intercept[ConfigurationException](RunFile.read(file(text))).getMessage
    assert(refusal("spark = 3").contains("has the value 3; it must be a table, headed [spark]"))
    val shortened = refusal("[spark]\nmaster = \"local\"\nexecutor.memory = \"2g\"")
    assert(shortened.contains("'executor.memory' in the [spark] table") && shortened.contains("small-net.toml"))
    assert(shortened.contains("did you mean 'spark.executor.memory'?"))
    assert(refusal("[spark]\nworkers = 2").contains("The key 'workers'"))
    assert(RunFile.read(file("[spark]\nspark.executor.memory = \"2g\"")).spark === Map("spark.executor.memory" -> "2g"))
    assert(RunFile.read(file("workers = 2")).spark.isEmpty)
  }

  test("what cannot be read or parsed is said in one sentence") {
    assert(intercept[ConfigurationException](RunFile.read("/no/such.toml")).getMessage.contains("/no/such.toml"))
    assert(intercept[ConfigurationException](RunFile.read(file("workers = = 2"))).getMessage.contains("not valid TOML"))
    assert(intercept[ConfigurationException](RunFile.read(example).set("workers")).getMessage.contains("key=value"))
  }
}
