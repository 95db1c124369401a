package sparkdlbench.model
package fuzz

import sparkdlbench.fuzz.FuzzTarget

import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path}

private object Model {
  lazy val specs: Seq[ModelSpec] = Seq(
    ModelFamily.of(RunKeysForTests.settings("model" -> "lenet"), Seq(1, 28, 28), 10),
    ModelFamily.of(RunKeysForTests.settings("model" -> "mlp", "model.hidden" -> "5"), Seq(4), 3)
  )

  /** All that a run asks of a specification before it trains. */
  def use(read: ModelSpec): Unit = {
    read.shapes
    read.flops
    read.parameterCount
    read.statisticsCount
    read.exchanges
    if (ModelSpec.fromJson(read.toJson) != read) throw new AssertionError("it is not what it was written as")
  }
}

object ModelJsonFuzz extends FuzzTarget("model-json") {
  def seeds: Seq[Array[Byte]] = Model.specs.map(_.toJson.getBytes(UTF_8))
  protected def read(input: Array[Byte]): Unit = Model.use(ModelSpec.fromJson(new String(input, UTF_8)))
}

/** A specification of the user's own, in TOML where the input does not begin as JSON. */
object ModelFileFuzz extends FuzzTarget("model-file") {
  private lazy val folder: Path = FuzzTarget.folder()
  def seeds: Seq[Array[Byte]] = Seq(
    Model.specs.last.toJson.getBytes(UTF_8),
    """|name = "net"
       |input_shape = [4]
       |classes = 2
       |[[layers]]
       |name = "l"
       |kind = "linear"
       |options = { in = 4, out = 2 }
       |initializer = "glorot_uniform"
       |""".stripMargin.getBytes(UTF_8)
  )
  protected def read(input: Array[Byte]): Unit = {
    val isJson = input.headOption.contains('{'.toByte)
    val path = Files.write(folder.resolve(if (isJson) "net.json" else "net.toml"), input)
    Model.use(FileFamily.read(path))
  }
}
