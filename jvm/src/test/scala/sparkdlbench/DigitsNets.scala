package sparkdlbench

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.Files

/** Small convolution nets for the embedded digits, as `model.spec` names them beside `model.name` = `file`. */
object DigitsNets {
  private val conv =
    """{"name": "conv", "kind": "conv2d", "options": {"in": 1, "out": 6, "kernel": 3, "padding": 1}, "initializer": "he-normal"}"""
  private val norm = """{"name": "norm", "kind": "batch-norm", "options": {"channels": 6}, "initializer": "one"}"""
  private val relu = """{"name": "relu", "kind": "relu"}"""
  private val pool = """{"name": "pool", "kind": "max-pool", "options": {"kernel": 2}}"""
  private val dropout = """{"name": "dropout", "kind": "dropout", "options": {"rate": 0.4}}"""
  private val linear =
    """{"name": "fc", "kind": "linear", "options": {"in": 96, "out": 10}, "initializer": "xavier-uniform"}"""

  /** With dropout. */
  lazy val dropping: (String, String) = model("dropping", conv, relu, pool, dropout, linear)

  /** With batch normalisation. */
  lazy val normal: (String, String) = model("normal", conv, norm, relu, pool, linear)

  private def model(name: String, layers: String*): (String, String) = {
    val text = s"""{"name": "$name", "input_shape": [1, 8, 8], "classes": 10, "layers": [${layers.mkString(",")}]}"""
    "model.spec" -> Files.write(Files.createTempFile(name, ".json"), text.getBytes(UTF_8)).toString
  }
}
