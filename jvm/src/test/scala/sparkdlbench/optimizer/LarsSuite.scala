package sparkdlbench.optimizer

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{RunKeys, Settings}
import sparkdlbench.model.ParameterSpec
import sparkdlbench.vector.FlatBuffer
import sparkdlbench.LocalRuns

import java.nio.FloatBuffer
import scala.util.Random

class LarsSuite extends AnyFunSuite with LocalRuns {
  override protected def common: Map[String, String] = Map(
    "transport" -> "block-stream",
    "in_memory_first" -> "off",
    "workers" -> "3",
    "epochs" -> "1",
    "max_steps" -> "8",
    "bucket_bytes" -> "4000",
    "optimizer.name" -> "lars",
    "optimizer.momentum" -> "0.9",
    "optimizer.weight_decay" -> "0.01",
    "optimizer.learning_rate" -> "1",
    "optimizer.trust" -> "0.02"
  )

  private val variant = new LarsVariant
  private val layout =
    Seq(("w1", 2500, 0), ("b1", 7, 2500), ("w2", 493, 2507)).map { case (name, size, at) =>
      ParameterSpec(name, Seq(size), at, "zero")
    }
  private val settings = Settings.resolve(
    Map("optimizer.learning_rate" -> "2", "optimizer.momentum" -> "0.9", "optimizer.weight_decay" -> "0.1"),
    RunKeys.own ++ variant.keys ++ LearningRateSchedule.keys
  )
  private def buffer(values: Array[Float]): FloatBuffer = {
    val flat = new FlatBuffer(values.length)
    flat.floats.put(0, values)
    flat.floats.duplicate()
  }
  private val random = new Random(3)
  private val start = Array.tabulate(3000)(i => if (i >= 2500 && i < 2507) 0f else random.nextGaussian().toFloat)
  private val gradients = Seq.fill(4)(Array.fill(3000)(random.nextGaussian().toFloat))

  /** The definition in double precision. */
  private def defined: Array[Double] = {
    val w = start.map(_.toDouble)
    val v = new Array[Double](3000)
    for (g <- gradients; tensor <- layout) {
      val range = tensor.offset until tensor.offset + tensor.length
      val ofWeights = math.sqrt(range.map(i => w(i) * w(i)).sum)
      val ofGradient = math.sqrt(range.map(i => g(i).toDouble * g(i)).sum)
      val ratio = if (ofWeights == 0) 1.0 else 0.001 * ofWeights / (ofGradient + 0.1 * ofWeights)
      range.foreach { i =>
        v(i) = 0.9 * v(i) + 2 * ratio * (g(i) + 0.1 * w(i))
        w(i) -= v(i)
      }
    }
    w
  }

  test("four steps are the definition's, tensors of zeros too") {
    val (weights, optimizer) = (buffer(start), variant.create(ParameterSlice(0, 3000, layout), settings))
    gradients.zipWithIndex.foreach { case (g, step) =>
      Optimizer.updateWhole(optimizer, weights, buffer(g), layout.size, step.toLong)
    }
    defined.zipWithIndex.foreach { case (expected, i) => assert(math.abs(weights.get(i) - expected) < 1e-5, i) }
  }

  test("slices that cut tensors are the same values, with the state restored in between") {
    val cuts = Seq((0, 1), (1, 1200), (1200, 2503), (2503, 2503), (2503, 3000))
    val parts = cuts.map { case (from, until) => buffer(start.slice(from, until)) }
    var owners = cuts.map { case (from, until) => variant.create(ParameterSlice(from, until, layout), settings) }
    gradients.zipWithIndex.foreach { case (g, step) =>
      owners = owners.zip(cuts).map { case (own, (from, until)) =>
        val next = variant.create(ParameterSlice(from, until, layout), settings)
        own.state.foreach { case (name, values) => values.copyToArray(next.state(name)) }
        next
      }
      val layerwise = owners.map(_.asInstanceOf[LayerwiseOptimizer])
      val slices = cuts.map { case (from, until) => buffer(g.slice(from, until)) }
      val squares = new Array[Double](6)
      layerwise.indices.foreach(i => layerwise(i).addSquares(parts(i), slices(i), squares))
      layerwise.indices.foreach { i =>
        layerwise(i).squaresAre(squares)
        layerwise(i).update(parts(i), slices(i), step.toLong)
      }
    }
    val expected = defined
    for (((from, until), part) <- cuts.zip(parts); i <- from until until)
      assert(math.abs(part.get(i - from) - expected(i)) < 1e-5, i)
  }

  test("an update before the lengths are told is a bug") {
    intercept[IllegalStateException](variant.create(3, settings).update(buffer(new Array(3)), buffer(new Array(3)), 0))
  }

  test("every topology and any number of workers take the same steps, clipped or not; bytes are as documented") {
    for (more <- Seq(Nil, Seq("clip_norm" -> "0.3"))) {
      val one = run(more :+ ("workers" -> "1"): _*)
      for {
        (topology, workers) <- Seq("sliced" -> 2, "sliced" -> 4, "ring" -> 3, "recursive" -> 3, "ps" -> 3)
      } {
        val many = run(more ++ Seq("topology" -> topology, "workers" -> workers.toString): _*)
        val apart = one.weights.zip(many.weights).map { case (a, b) => math.abs(a - b) }.max
        assert(apart < 1e-4, s"$topology, $workers workers, $more")
        if (topology == "sliced") {
          val numbers = 2 * 4 + more.size // a weight and a bias of each of two layers
          assert(bytes(many) == 8L * (2 * (workers - 1) * parameters * 4 + 2 * (workers - 1) * numbers * 8))
        }
      }
    }
  }

  test("ranks with weights of their own, and lossy weights, use it too") {
    for (algorithm <- Seq("local-sgd", "easgd", "gossip"))
      assert(accuracy(run("algorithm" -> algorithm, "epochs" -> "12", "max_steps" -> "0")) > 0.85, algorithm)
    assert(accuracy(run("codec" -> "bf16", "epochs" -> "12", "max_steps" -> "0")) > 0.85)
  }

  test("jobs in which one place updates everything train alike; those that cut layers refuse") {
    val one = run("workers" -> "2")
    for (more <- Seq(Seq("shuffle.exchanges" -> "one"), Seq("topology" -> "tree"))) {
      val other = run(more ++ Seq("workers" -> "2", "transport" -> "shuffle"): _*)
      assert(one.weights.zip(other.weights).forall { case (a, b) => math.abs(a - b) < 1e-4 }, more)
    }
    for (transport <- Seq("block-manager", "shuffle")) {
      val message = intercept[ConfigurationException](run("transport" -> transport)).getMessage
      assert(message.contains("lengths of whole layers") && message.contains(transport), message)
    }
  }
}
