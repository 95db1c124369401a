package sparkdlbench.algorithm

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException
import sparkdlbench.vector.{FlatBuffer, FloatOps}
import sparkdlbench.LocalRuns

class ClippingSuite extends AnyFunSuite with LocalRuns {
  override protected def common: Map[String, String] = Map(
    "transport" -> "block-stream",
    "in_memory_first" -> "off",
    "workers" -> "3",
    "epochs" -> "1",
    "bucket_bytes" -> "4000",
    "optimizer.learning_rate" -> "0.5"
  )

  private def length(one: Array[Float], other: Array[Float]): Double =
    math.sqrt(one.zip(other).map { case (a, b) => math.pow(a.toDouble - b, 2) }.sum)

  test("a step is as long as the limit times the learning rate where the gradient is longer, and as it was where not") {
    def after(steps: Int, more: (String, String)*) = run(more :+ ("max_steps" -> steps.toString): _*).weights
    for ((topology, workers) <- Seq("sliced" -> "1", "sliced" -> "3", "ring" -> "3", "recursive" -> "3")) {
      val chosen = Seq("topology" -> topology, "workers" -> workers)
      val (start, one) = (after(1, chosen: _*), after(2, chosen: _*))
      val free = length(start, one) / 0.5
      assert(free > 0.3, free)
      // Two runs that differ in the second step alone: the first is not clipped by a limit above its length.
      val clipped = after(1, chosen :+ ("clip_norm" -> "0.1"): _*)
      val further = after(2, chosen :+ ("clip_norm" -> "0.1"): _*)
      assert(math.abs(length(clipped, further) / 0.5 - 0.1) < 1e-4, s"$topology, $workers workers")
      assert(after(2, chosen :+ ("clip_norm" -> "1e6"): _*) === one)
    }
  }

  test("any number of workers clips alike") {
    val one = run("workers" -> "1", "clip_norm" -> "0.2", "epochs" -> "2")
    for (workers <- 2 to 4) {
      val many = run("workers" -> workers.toString, "clip_norm" -> "0.2", "epochs" -> "2")
      assert(length(one.weights, many.weights) < 1e-4)
    }
  }

  test("the sum of squares is exact for any length") {
    for (size <- Seq(0, 1, 1024, 3001)) {
      val values = new FlatBuffer(size)
      (0 until size).foreach(i => values.floats.put(i, (i % 7).toFloat))
      assert(FloatOps.sumOfSquares(values.floats) == (0 until size).map(i => math.pow(i % 7, 2)).sum)
    }
  }

  test("where one place has the whole sum, a job per step clips as the one-stage shape does") {
    val steps = Seq("max_steps" -> "8", "optimizer.learning_rate" -> "0.1", "optimizer.momentum" -> "0.9")
    def weights(chosen: Seq[(String, String)], clip: String) =
      run(steps ++ chosen :+ ("clip_norm" -> clip): _*).weights
    val (clipped, free) = (weights(Nil, "0.2"), weights(Nil, "0"))
    assert(length(clipped, free) > 0.1)
    for (
      chosen <- Seq(
        Seq("transport" -> "shuffle", "shuffle.exchanges" -> "one"),
        Seq("transport" -> "shuffle", "topology" -> "tree")
      )
    ) {
      // The squares are added up in another order.
      assert(length(weights(chosen, "0.2"), clipped) < 1e-4, chosen)
      assert(weights(chosen, "0") === free, chosen)
    }
  }

  test("what cannot know the sum before it changes weights refuses to clip") {
    Seq(Seq("transport" -> "block-manager"), Seq("transport" -> "shuffle"), Seq("algorithm" -> "local-sgd")).foreach {
      chosen =>
        val message = intercept[ConfigurationException](run(chosen :+ ("clip_norm" -> "1"): _*)).getMessage
        assert(message.contains("clip_norm = 1.0") && message.contains(chosen.head._2), message)
        assert(message.contains("shuffle.exchanges = one"), message)
    }
  }
}
