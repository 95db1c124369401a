package sparkdlbench.engine.libtorch

import sparkdlbench.model.{Initializers, ModelSpec}
import sparkdlbench.vector.FlatBuffer

import java.nio.charset.StandardCharsets
import java.nio.file.{Files, Paths}

/**
 * The golden losses: 20 steps of plain SGD (rate 0.1, 32 rows per step, seed 1) on seeded synthetic rows. The files are
 * written by the reference in double precision, so they belong to no engine:
 * {{{
 * project/sbt "jvm/Test/runMain sparkdlbench.engine.libtorch.GoldenLosses src/test/resources/golden"
 * }}}
 */
object GoldenLosses {
  val rows = 32
  val steps = 20
  val learningRate = 0.1f

  val models: Seq[(String, ModelSpec)] = Seq(
    "softmax" -> EngineFixture.softmax(64, 10),
    "mlp" -> EngineFixture.mlp(64, "100,50", 10),
    "mlp-tanh" -> EngineFixture.mlp(64, "100", 10, "tanh")
  )

  def main(arguments: Array[String]): Unit = models.foreach { case (name, spec) =>
    val header = s"# Mean loss (nats) of each step: $name, parameters ${spec.parameterCount}; written by GoldenLosses"
    val text = (header +: reference(spec).map(_.toString)).mkString("", "\n", "\n")
    Files.write(Paths.get(arguments(0), s"$name.txt"), text.getBytes(StandardCharsets.UTF_8))
  }

  private def reference(spec: ModelSpec): Seq[Double] = {
    val initial = new FlatBuffer(spec.parameterCount)
    Initializers.fill(spec, 1, initial)
    val parameters = initial.toArray.map(_.toDouble)
    val network = new ReferenceNetwork(spec)
    (0 until steps).map { step =>
      val data = EngineFixture.batch(spec, rows, EngineFixture.batchSeed(step))
      val features = EngineFixture.rowsOf(data, spec.inputShape.product)
      val (loss, gradient) = network.lossAndGradient(parameters, features, EngineFixture.labelsOf(data), 1.0 / rows)
      for (i <- parameters.indices) parameters(i) -= learningRate * gradient(i)
      loss / rows
    }
  }
}
