package sparkdlbench.engine.libtorch

import sparkdlbench.OnOneLine
import sparkdlbench.config.Variants
import sparkdlbench.data.{Batch, RowIds}
import sparkdlbench.engine.{Engine, EngineVariant, Evaluation}
import sparkdlbench.model.{LayerSpec, ModelSpec, ParityModels}
import sparkdlbench.vector.FlatBuffer

import java.nio.file.{Files, Paths}
import scala.collection.mutable.ArrayBuffer
import scala.jdk.CollectionConverters._

class LibtorchEngineSuite extends OnOneLine {
  import EngineFixture._

  private val models: Seq[(String, ModelSpec)] = Seq(
    "softmax" -> softmax(7, 5),
    "mlp relu" -> mlp(9, "11", 4),
    "mlp with more outputs than a narrow layer has" -> mlp(9, "24", 17),
    "mlp tanh, two hidden layers" -> mlp(6, "8,5", 3, "tanh"),
    "activation first, two in a row, one last" -> ModelSpec(
      "odd",
      Seq(2, 3),
      3,
      Seq(
        LayerSpec("a", "tanh"),
        LayerSpec("b", "linear", Map("in" -> 6, "out" -> 5), "he-uniform"),
        LayerSpec("c", "tanh"),
        LayerSpec("d", "relu"),
        LayerSpec("e", "linear", Map("in" -> 5, "out" -> 3), "he-uniform"),
        LayerSpec("f", "tanh")
      )
    )
  )

  private def using[T](engine: Engine)(body: Engine => T): T =
    try body(engine)
    finally engine.close()

  private def assertClose(found: Array[Float], expected: Array[Double], tolerance: Double): Unit = {
    val scale = expected.map(_.abs).max
    found.zip(expected).zipWithIndex.foreach { case ((f, e), i) =>
      assert((f - e).abs <= tolerance * scale, s"value $i: $f, expected $e")
    }
  }

  test("the engine is found by its name") {
    assert(Variants.find[EngineVariant]("engine", "libtorch").isInstanceOf[LibtorchVariant])
  }

  for ((name, spec) <- models; rows <- Seq(1, 2, 13, 16))
    test(s"loss and gradient are the reference's: $name, $rows rows") {
      using(load(spec, 16)) { engine =>
        for (i <- 0 until engine.gradients.length) engine.gradients.floats.put(i, Float.NaN)
        val data = batch(spec, rows, rows.toLong)
        val weight = 0.37f
        val loss = engine.step(data, weight, (_, _) => ())
        val (expectedLoss, expected) = new ReferenceNetwork(spec)
          .lossAndGradient(
            engine.parameters.toArray.map(_.toDouble),
            rowsOf(data, spec.inputShape.product),
            labelsOf(data),
            weight
          )
        assert((loss - expectedLoss).abs < 1e-5 * expectedLoss)
        assertClose(engine.gradients.toArray, expected, 1e-5)
      }
    }

  for ((name, spec) <- models)
    test(s"gradients agree with central differences of the engine's own loss: $name") {
      using(load(spec, 8)) { engine =>
        val data = batch(spec, 8, 5)
        val found = gradient(engine, data, 1f)
        val h = 1e-2f
        val weights = engine.parameters.floats
        val numeric = Array.tabulate(engine.parameters.length) { i =>
          val centre = weights.get(i)
          weights.put(i, centre + h)
          val above = engine.evaluate(data).lossSum
          weights.put(i, centre - h)
          val below = engine.evaluate(data).lossSum
          weights.put(i, centre)
          (above - below) / ((centre + h).toDouble - (centre - h).toDouble)
        }
        // A ReLU's kink between the two points makes single differences wrong by more than rounding.
        val scale = numeric.map(_.abs).max
        val far = found.indices.filter(i => (found(i) - numeric(i)).abs > 3e-3 * scale)
        assert(far.size <= found.length / 20, far.take(5).map(i => s"$i: ${found(i)} and ${numeric(i)}"))
      }
    }

  test("row counts may change from step to step, and come back, without changing a bit") {
    val spec = mlp(20, "33", 10)
    using(load(spec, 64)) { engine =>
      val fresh = (1 to 64).map(rows => rows -> gradient(engine, batch(spec, rows, 3), 1f).toSeq).toMap
      for (rows <- Seq(64, 1, 63, 17, 2, 64, 5, 40, 41, 39, 38, 37, 36, 1))
        assert(gradient(engine, batch(spec, rows, 3), 1f).toSeq == fresh(rows), s"$rows rows")
    }
  }

  test("no rows give a zero gradient, no loss and one bucket over everything") {
    val spec = mlp(5, "4", 3)
    using(load(spec, 4)) { engine =>
      gradient(engine, batch(spec, 4, 1), 1f)
      val buckets = ArrayBuffer.empty[(Int, Int)]
      assert(engine.step(batch(spec, 0, 1), 1f, (from, until) => buckets += ((from, until))) == 0.0)
      assert(engine.gradients.toArray.forall(_ == 0f))
      assert(buckets.toSeq == Seq((0, spec.parameterCount)))
      assert(engine.evaluate(batch(spec, 0, 1)) == Evaluation(0, 0.0, 0))
    }
  }

  for ((name, spec) <- models)
    test(s"buckets run from the last layer to the first, cover the buffer once, and are final when announced: $name") {
      using(load(spec, 6)) { engine =>
        val data = batch(spec, 6, 2)
        val complete = gradient(engine, data, 1f)
        for (i <- complete.indices) engine.gradients.floats.put(i, Float.NaN)
        val original = engine.parameters.toArray
        val buckets = ArrayBuffer.empty[(Int, Int)]
        engine.step(
          data,
          1f,
          (from, until) => {
            buckets += ((from, until))
            for (i <- from until until) {
              assert(engine.gradients.floats.get(i) == complete(i))
              // Whoever synchronises may change weights now: the step must not read them again.
              engine.parameters.floats.put(i, Float.NaN)
            }
          }
        )
        assert(engine.gradients.toArray.toSeq == complete.toSeq)
        assert(buckets.map(_._1).toSeq == buckets.map(_._1).sortBy(-_).toSeq)
        assert(buckets.flatMap { case (from, until) => from until until }.sorted.toSeq == original.indices)
      }
    }

  test("evaluation counts correct rows and sums losses as the reference does") {
    val spec = mlp(12, "10", 4)
    using(load(spec, 50)) { engine =>
      val data = batch(spec, 47, 9)
      losses(engine, spec, 32, 5, 0.1f)
      val found = engine.evaluate(data)
      val reference = new ReferenceNetwork(spec)
      val parameters = engine.parameters.toArray.map(_.toDouble)
      val scores = rowsOf(data, 12).map(reference.logits(parameters, _))
      val correct = scores.zip(labelsOf(data)).count { case (row, label) => row.indexOf(row.max) == label }
      val (loss, _) = reference.lossAndGradient(parameters, rowsOf(data, 12), labelsOf(data), 1)
      assert(found.rows == 47 && found.correct == correct)
      assert((found.lossSum - loss).abs < 1e-4)
      assert(correct > 12 && correct < 48)
    }
  }

  test("rows that do not start at a cache line give the same bits") {
    val spec = mlp(20, "33", 10)
    using(load(spec, 16)) { engine =>
      val data = batch(spec, 16, 3)
      val shifted = new FlatBuffer(16 * 20 + 3).floatSlice(3, 3 + 16 * 20)
      shifted.duplicate().put(data.features.duplicate())
      val expected = gradient(engine, data, 1f).toSeq
      assert(gradient(engine, Batch(16, shifted, data.labels), 1f).toSeq == expected)
      for (i <- 0 until 320) shifted.put(i, 0f)
      assert(gradient(engine, Batch(16, shifted, data.labels), 1f).toSeq != expected)
    }
  }

  test("two seeded trainings give the same bits, whichever thread runs a step") {
    val spec = mlp(100, "64,32", 10)
    def train(otherThread: Boolean): Seq[Float] = using(load(spec, 32)) { engine =>
      for (step <- 0 until 30) {
        def run(): Unit = { losses(engine, spec, 32 - step % 3, 1, 0.1f); () }
        if (!otherThread) run()
        else {
          val thread = new Thread(() => run())
          thread.start()
          thread.join(60000)
        }
      }
      engine.parameters.toArray.toSeq
    }
    val first = train(otherThread = false)
    assert(train(otherThread = false) == first)
    assert(train(otherThread = true) == first)
  }

  test("ranks that are threads of one JVM compute what each computes alone") {
    val spec = mlp(100, "256", 10)
    def train(rank: Int): Seq[Float] = using(load(spec, 32, threads = 1 + rank % 2, seed = rank.toLong)) { engine =>
      losses(engine, spec, 32, 20, 0.1f)
      engine.parameters.toArray.toSeq
    }
    val alone = (0 until 4).map(train)
    val together = new Array[Seq[Float]](4)
    val threads = (0 until 4).map(rank => new Thread(() => together(rank) = train(rank)))
    threads.foreach(_.start())
    threads.foreach(_.join(120000))
    assert(together.toSeq == alone)
  }

  test("labels outside the classes and batches larger than loaded are refused") {
    val spec = softmax(4, 3)
    using(load(spec, 2)) { engine =>
      val data = batch(spec, 2, 1)
      data.labels.put(1, 3L)
      assert(
        intercept[IllegalArgumentException](engine.step(data, 1f, (_, _) => ())).getMessage
          .contains("row 1 has the label 3")
      )
      assert(intercept[IllegalArgumentException](engine.evaluate(batch(spec, 3, 1))).getMessage.contains("at most 2"))
    }
  }

  test("resident memory is flat over 3000 steps") {
    val spec = mlp(64, "128", 10)
    using(load(spec, 32)) { engine =>
      val batches = (1 to 32).map(rows => batch(spec, rows, rows.toLong))
      def run(steps: Int): Long = {
        for (step <- 0 until steps) engine.step(batches(31 - step % 12), 1f / (1 + step % 7), (_, _) => ())
        System.gc()
        residentKilobytes()
      }
      val before = run(500)
      val after = run(3000)
      assert(after < before * 1.05, s"$before kB after 500 steps, $after kB after 3000 more")
    }
  }

  test("resident memory is flat over 200 steps of ResNet-18") {
    val spec = ParityModels.family("resnet-18", Seq(1, 8, 8))
    using(load(spec, 4)) { engine =>
      val batches = (1 to 4).map(rows => batch(spec, rows, rows.toLong))
      def run(steps: Int): Long = {
        for (step <- 0 until steps) engine.step(batches(3 - step % 2), 0.25f, (_, _) => ())
        engine.evaluate(batches(2))
        System.gc()
        residentKilobytes()
      }
      val before = run(50)
      val after = run(200)
      assert(after < before * 1.05, s"$before kB after 50 steps, $after kB after 200 more")
    }
  }

  for (name <- Seq("every-layer", "resnet-18", "googlenet"))
    test(s"buckets of a graph cover the buffer once and are final when announced: $name") {
      val model = ParityModels.all.find(_.name == name).get
      using(load(model.spec, model.rows)) { engine =>
        val data = ParityModels.batch(model.spec, model.rows, 0)
        val complete = gradient(engine, data, 1f)
        for (i <- complete.indices) engine.gradients.floats.put(i, Float.NaN)
        var end = complete.length
        engine.step(
          data,
          1f,
          (from, until) => {
            assert(until == end)
            end = from
            for (i <- from until until) {
              assert(engine.gradients.floats.get(i) == complete(i))
              engine.parameters.floats.put(i, Float.NaN)
            }
          }
        )
        assert(end == 0)
      }
    }

  test("dropout follows the rows' ids and the step, not their place") {
    val spec = ParityModels.everyLayer.copy(layers = ParityModels.everyLayer.layers.filterNot(_.kind == "batch-norm"))
    using(load(spec, 6)) { engine =>
      val all = ParityModels.batch(spec, 6, 3)
      def loss(first: Int, count: Int, step: Long): Double = {
        val width = spec.inputShape.product
        val features = all.features.slice(first * width, count * width)
        val ids = new RowIds(Array(10, 11, 12, 13, 14, 15), first)
        engine.step(Batch(count, features, all.labels.slice(first, count), ids, step), 1f, (_, _) => ())
      }
      val whole = loss(0, 6, 5)
      assert((loss(0, 2, 5) + loss(2, 4, 5) - whole).abs < 1e-4 * whole)
      assert((loss(0, 6, 6) - whole).abs > 1e-3 * whole)
    }
  }

  test("dropout with rate 0 drops nothing, in place or not") {
    val net = ParityModels.everyLayer
    val none = net.copy(layers = net.layers.map { layer =>
      if (layer.kind == "dropout") layer.copy(options = layer.options.updated("rate", 0.0)) else layer
    })
    // Values that two layers read are not overwritten.
    def twice(rate: Double) = net.copy(layers =
      Seq(
        LayerSpec("one", "dropout", Map("rate" -> rate)),
        LayerSpec("two", "dropout", Map("rate" -> rate), inputs = Seq("one")),
        LayerSpec("sum", "add", inputs = Seq("one", "two")),
        LayerSpec(
          "fc",
          "linear",
          Map("in" -> net.inputShape.product.toDouble, "out" -> net.classes.toDouble),
          "he-normal"
        )
      )
    )
    for ((spec, drops) <- Seq(none -> false, net -> true, twice(0) -> false, twice(0.5) -> true))
      using(load(spec, 4)) { engine =>
        def loss(step: Long) = {
          val batch = ParityModels.batch(spec, 4, 3)
          engine.step(Batch(4, batch.features, batch.labels, batch.ids, step), 1f, (_, _) => ())
        }
        assert((loss(0) == loss(1)) != drops, spec.layers.map(_.name))
      }
  }

  for (withBias <- Seq(true, false); rows <- Seq(1, 2, 5))
    test(s"a convolution of 1 × 1 is one of 3 × 3 with zeros around its weights: $rows rows, bias $withBias") {
      // Two of them: the first computes no gradient of its input, the second does.
      def spec(kernel: Int): ModelSpec = {
        def convolution(name: String, in: Int, out: Int): LayerSpec = LayerSpec(
          name,
          "conv2d",
          Map[String, Double](
            "in" -> in,
            "out" -> out,
            "kernel" -> kernel,
            "padding" -> (kernel / 2).toDouble,
            "bias" -> (if (withBias) 1 else 0)
          ),
          "he-normal",
          biasInitializer = if (withBias) "constant-0.1" else "zero"
        )
        ModelSpec(
          "pointwise",
          Seq(3, 9, 8),
          5,
          Seq(
            convolution("conv1", 3, 6),
            LayerSpec("tanh", "tanh"),
            convolution("conv2", 6, 4),
            LayerSpec("fc", "linear", Map("in" -> 288, "out" -> 5), "xavier-uniform")
          )
        )
      }
      val (narrow, wide) = (spec(1), spec(3))
      // Where in the wide model each parameter of the narrow one lies.
      val places = narrow.layout.zip(wide.layout).flatMap { case (small, large) =>
        val field = large.length / small.length
        (0 until small.length).map(i => (small.offset + i) -> (large.offset + i * field + field / 2))
      }
      using(load(narrow, 8)) { one =>
        using(load(wide, 8)) { other =>
          for (i <- 0 until other.parameters.length) other.parameters.floats.put(i, 0f)
          places.foreach { case (from, to) => other.parameters.floats.put(to, one.parameters.floats.get(from)) }
          val data = batch(narrow, rows, 4)
          for (i <- 0 until one.gradients.length) one.gradients.floats.put(i, Float.NaN)
          val (lossOfOne, lossOfOther) = (one.step(data, 0.5f, (_, _) => ()), other.step(data, 0.5f, (_, _) => ()))
          assert((lossOfOne / lossOfOther - 1).abs < 1e-5)
          val expected = new Array[Double](narrow.parameterCount)
          places.foreach { case (from, to) => expected(from) = other.gradients.floats.get(to).toDouble }
          assertClose(one.gradients.toArray, expected, 1e-5)
        }
      }
    }

  test("a closed engine says so") {
    val engine = load(softmax(4, 3), 2)
    engine.close()
    engine.close()
    assert(intercept[IllegalStateException](engine.evaluate(batch(softmax(4, 3), 1, 1))).getMessage.contains("closed"))
  }

  for ((name, spec) <- GoldenLosses.models)
    test(s"losses repeat the golden file: $name") {
      using(load(spec, GoldenLosses.rows)) { engine =>
        val found = losses(engine, spec, GoldenLosses.rows, GoldenLosses.steps, GoldenLosses.learningRate)
        val resource = getClass.getResource(s"/golden/$name.txt")
        val golden = Files.readAllLines(Paths.get(resource.toURI)).asScala.filterNot(_.startsWith("#")).map(_.toDouble)
        assert(golden.size == GoldenLosses.steps)
        found.zip(golden).zipWithIndex.foreach { case ((f, g), step) =>
          assert((f / g - 1).abs < 1e-4, s"step $step: $f, golden $g")
        }
        assert(found.last < 0.7 * found.head)
      }
    }

  private def residentKilobytes(): Long = Files
    .readAllLines(Paths.get("/proc/self/status"))
    .asScala
    .collectFirst { case line if line.startsWith("VmRSS:") => line.filter(_.isDigit).toLong }
    .getOrElse(cancel("this system has no /proc/self/status"))
}
