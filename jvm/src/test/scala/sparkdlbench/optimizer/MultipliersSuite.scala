package sparkdlbench.optimizer

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.Json
import sparkdlbench.config.{RunKeys, Settings, Variants}
import sparkdlbench.model.{Initializers, ParameterSpec}
import sparkdlbench.vector.FlatBuffer

import java.nio.FloatBuffer
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Paths}
import scala.jdk.CollectionConverters._

/** Optimisers with factors for each tensor against PyTorch's with parameter groups (tests/golden_multipliers.py). */
class MultipliersSuite extends AnyFunSuite {
  private lazy val golden = Json.read(
    new String(Files.readAllBytes(Paths.get(getClass.getResource("/golden/multipliers.json").toURI)), UTF_8)
  )
  private lazy val steps = golden.path("steps").asInt
  private lazy val layout = {
    val groups = golden.path("groups").elements.asScala.toSeq
    val starts = groups.scanLeft(0)(_ + _.get(0).asInt)
    groups.zip(starts).map { case (group, from) =>
      ParameterSpec("", Seq(group.get(0).asInt), from, "zero", group.get(1).asDouble, group.get(2).asDouble)
    }
  }
  private lazy val length = layout.map(_.length).sum

  private def vector(seed: Long): Array[Float] =
    Array.tabulate(length)(Initializers.values("uniform-1", Seq(length), seed, 0))

  private def buffer(values: Array[Float]): FloatBuffer = {
    val flat = new FlatBuffer(values.length)
    flat.floats.put(0, values)
    flat.floats.duplicate()
  }

  private def trained(settings: Settings, from: Int, until: Int): Seq[Float] = {
    val optimizer = Variants
      .find[OptimizerVariant]("optimizer", settings(RunKeys.optimizer))
      .create(ParameterSlice(from, until, layout), settings)
    val weights = buffer(vector(1).slice(from, until))
    for (step <- 0 until steps) optimizer.update(weights, buffer(vector(100L + step).slice(from, until)), step.toLong)
    (0 until until - from).map(weights.get)
  }

  test("every optimiser gives each tensor what PyTorch's gives a parameter group, whole and cut anywhere") {
    golden.path("optimizers").elements.asScala.foreach { expected =>
      val chosen =
        expected.path("settings").properties.asScala.map(entry => entry.getKey -> entry.getValue.asText).toMap
      val settings = RunKeys.resolve(
        chosen ++ Map(
          "optimizer.learning_rate" -> golden.path("learning_rate").asText,
          "optimizer.weight_decay" -> golden.path("weight_decay").asText
        )
      )
      val found = trained(settings, 0, length)
      val weights = expected.path("weights").elements.asScala.map(_.asDouble).toSeq
      found.zip(weights).zipWithIndex.foreach { case ((own, other), i) =>
        assert(math.abs(own - other) < 1e-5, s"$chosen, value $i")
      }
      val cuts = Seq(0, 1, 50, 75, 76, 117, 119, length)
      assert(cuts.zip(cuts.tail).flatMap { case (from, until) => trained(settings, from, until) } == found, chosen)
    }
  }

  test("slices hold the factors of their values, and neighbours with the same factors are one piece") {
    val some = Multipliers.of(
      Seq(Multiplier(0, 4, 1f, 1f), Multiplier(4, 6, 1f, 1f), Multiplier(6, 6, 9f, 9f), Multiplier(6, 9, 2f, 0f))
    )
    assert(some.pieces == Seq(Multiplier(0, 6, 1f, 1f), Multiplier(6, 9, 2f, 0f)))
    assert(some.slice(2, 8).pieces == Seq(Multiplier(0, 4, 1f, 1f), Multiplier(4, 6, 2f, 0f)))
    assert(some.slice(7, 9).pieces == Seq(Multiplier(0, 2, 2f, 0f)))
    assert(some.slice(3, 3).length == 0 && some.slice(0, 9).length == 9)
  }
}
