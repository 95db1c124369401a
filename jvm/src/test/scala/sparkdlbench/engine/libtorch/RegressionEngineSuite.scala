package sparkdlbench.engine.libtorch

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.config.{RunKeys, Settings, Variants}
import sparkdlbench.data.Batch
import sparkdlbench.engine.{Engine, EngineVariant}
import sparkdlbench.loss.{Loss, RegressionLoss, Target}
import sparkdlbench.model.Initializers
import sparkdlbench.vector.FlatBuffer

import java.nio.{ByteBuffer, ByteOrder}

/** A net of one output under each loss of a regression: losses, gradients and metrics beside plain formulas. */
class RegressionEngineSuite extends AnyFunSuite {
  private val (rows, width) = (9, 3)
  private val keys = Variants.all[EngineVariant].flatMap(_.keys) ++ Variants.all[Loss].flatMap(_.keys) ++
    Seq(RunKeys.seed, RunKeys.engine, RunKeys.loss)
  private val random = new java.util.SplittableRandom(5)
  private val features = Array.fill(rows, width)(random.nextDouble().toFloat)
  private val targets = Array.fill(rows)((4 * random.nextDouble() - 2).toFloat)

  private val batch: Batch = {
    val held = new FlatBuffer(rows * width)
    val labels = ByteBuffer.allocateDirect(rows * 8).order(ByteOrder.nativeOrder()).asLongBuffer()
    features.flatten.zipWithIndex.foreach { case (value, at) => held.floats.put(at, value) }
    targets.zipWithIndex.foreach { case (value, at) => labels.put(at, Target.bits(value).toLong) }
    Batch(rows, held.floats, labels)
  }

  private def withEngine(loss: String)(use: (Engine, Settings) => Unit): Unit = {
    val settings = Settings.resolve(Map("loss.name" -> loss, "loss.delta" -> "0.8"), keys)
    val spec = EngineFixture.mlp(width, "", 1)
    val engine = new LibtorchVariant().load(spec, rows, 1, settings)
    try {
      Initializers.fill(spec, 3, engine.parameters)
      use(engine, settings)
    } finally engine.close()
  }

  test("with class weights a row's loss and gradient count as often as its class's weight says") {
    val spec = EngineFixture.mlp(width, "5", 3)
    val three = EngineFixture.batch(spec, 6, seed = 2)
    // Row i as often as the weight of its class says.
    val weights = Seq(1, 3, 0)
    val ids = (0 until 6).flatMap(row => Seq.fill(weights(three.labels.get(row).toInt))(row))
    val repeated = {
      val held = new FlatBuffer(ids.size * width)
      val labels = ByteBuffer.allocateDirect(ids.size * 8).order(ByteOrder.nativeOrder()).asLongBuffer()
      ids.zipWithIndex.foreach { case (row, at) =>
        (0 until width).foreach(i => held.floats.put(at * width + i, three.features.get(row * width + i)))
        labels.put(at, three.labels.get(row))
      }
      Batch(ids.size, held.floats, labels)
    }
    def step(batch: Batch, chosen: (String, String)*): (Double, Seq[Float], Double) = {
      val engine = new LibtorchVariant().load(spec, 18, 1, Settings.resolve(chosen.toMap, keys))
      try {
        Initializers.fill(spec, 3, engine.parameters)
        val loss = engine.step(batch, 0.25f, (_, _) => ())
        (loss, (0 until spec.parameterCount).map(engine.gradients.floats.get(_)), engine.evaluate(batch).lossSum)
      } finally engine.close()
    }
    val (loss, gradient, test) = step(three, "loss.class_weights" -> weights.mkString(","))
    val (wanted, wantedGradient, _) = step(repeated)
    assert(math.abs(loss - wanted) < 1e-5 && math.abs(test - wanted) < 1e-5)
    gradient.zip(wantedGradient).foreach { case (one, other) => assert(math.abs(one - other) < 1e-6) }
  }

  test("a row whose label is ignored counts as none, whether the label is a class or not") {
    val spec = EngineFixture.mlp(width, "5", 3)
    def batch(ids: Seq[Int], label: Int => Long): Batch = {
      val held = new FlatBuffer(ids.size * width)
      val labels = ByteBuffer.allocateDirect(ids.size * 8).order(ByteOrder.nativeOrder()).asLongBuffer()
      ids.zipWithIndex.foreach { case (row, at) =>
        (0 until width).foreach(i => held.floats.put(at * width + i, features(row)(i)))
        labels.put(at, label(row))
      }
      Batch(ids.size, held.floats, labels)
    }
    for (ignored <- Seq(-1, 1, 255)) {
      def label(row: Int) = if (row % 3 == 1) Target.weighted(ignored, 1.5f) else Target.weighted(row % 3, 1f + row)
      def step(batch: Batch) = {
        val settings = Settings.resolve(Map("loss.ignore_label" -> ignored.toString), keys)
        val engine = new LibtorchVariant().load(spec, rows, 1, settings)
        try {
          Initializers.fill(spec, 3, engine.parameters)
          val loss = engine.step(batch, 0.25f, (_, _) => ())
          (loss, (0 until spec.parameterCount).map(engine.gradients.floats.get(_)), engine.evaluate(batch))
        } finally engine.close()
      }
      val (loss, gradient, found) = step(batch(0 until rows, label))
      val (wanted, wantedGradient, kept) = step(batch((0 until rows).filter(_ % 3 != 1), label))
      assert(math.abs(loss - wanted) < 1e-5 && math.abs(found.lossSum - kept.lossSum) < 1e-5)
      assert(found.rows == 6 && kept.rows == 6 && found.correct == kept.correct)
      gradient.zip(wantedGradient).foreach { case (one, other) => assert(math.abs(one - other) < 1e-6) }
    }
  }

  test("with weights of their own rows count as often as these say, in every loss") {
    val weights = Seq(2f, 0f, 1f, 3f)
    for (each <- Variants.all[Loss]) {
      val spec = EngineFixture.mlp(width, "5", if (each.hasNumbers) 1 else 3)
      def label(row: Int) =
        if (each.isBinary) Target.bits((row % 2).toFloat)
        else if (each.isRegression) Target.bits(targets(row))
        else row % 3
      def batch(ids: Seq[Int], labels: Seq[Long]): Batch = {
        val held = new FlatBuffer(ids.size * width)
        val of = ByteBuffer.allocateDirect(ids.size * 8).order(ByteOrder.nativeOrder()).asLongBuffer()
        ids.zipWithIndex.foreach { case (row, at) =>
          (0 until width).foreach(i => held.floats.put(at * width + i, features(row)(i)))
          of.put(at, labels(at))
        }
        Batch(ids.size, held.floats, of)
      }
      def step(batch: Batch): (Double, Seq[Float], Double) = {
        val settings = Settings.resolve(Map("loss.name" -> each.name, "loss.delta" -> "0.8"), keys)
        val engine = new LibtorchVariant().load(spec, rows, 1, settings)
        try {
          Initializers.fill(spec, 3, engine.parameters)
          val loss = engine.step(batch, 0.25f, (_, _) => ())
          (loss, (0 until spec.parameterCount).map(engine.gradients.floats.get(_)), engine.evaluate(batch).lossSum)
        } finally engine.close()
      }
      val ids = weights.indices.flatMap(row => Seq.fill(weights(row).toInt)(row))
      val (loss, gradient, test) =
        step(batch(weights.indices, weights.indices.map(row => Target.weighted(label(row), weights(row)))))
      val (wanted, wantedGradient, _) = step(batch(ids, ids.map(label(_).toLong)))
      assert(math.abs(loss - wanted) < 1e-5 && math.abs(test - wanted) < 1e-5, each.name)
      gradient.zip(wantedGradient).foreach { case (one, other) => assert(math.abs(one - other) < 1e-6, each.name) }
    }
  }

  test(
    "binary-cross-entropy of several outputs: loss and gradient are those of the formulas, each label counts alike"
  ) {
    val (labels, weights) =
      (Array.tabulate(rows, 2)((row, at) => (row + at) % 2), (0 until rows).map(row => 0.5f + row % 3))
    val held = new FlatBuffer(rows * width)
    features.flatten.zipWithIndex.foreach { case (value, at) => held.floats.put(at, value) }
    val wanted = ByteBuffer.allocateDirect(rows * 2 * 8).order(ByteOrder.nativeOrder()).asLongBuffer()
    labels.flatten.zipWithIndex.foreach { case (answer, at) =>
      wanted.put(at, Target.weighted(Target.bits(answer.toFloat), weights(at / 2)))
    }
    val spec = EngineFixture.mlp(width, "", 2)
    val settings = Settings.resolve(Map("loss.name" -> "binary-cross-entropy"), keys)
    val engine = new LibtorchVariant().load(spec, rows, 1, settings)
    try {
      Initializers.fill(spec, 3, engine.parameters)
      val scores = java.nio.FloatBuffer.allocate(2 * rows)
      engine.predict(Batch(rows, held.floats, wanted), scores)
      val likely = scores.array.map(score => 1 / (1 + math.exp(-score.toDouble)))
      val losses = likely.indices.map { at =>
        -weights(at / 2) * math.log(if (labels(at / 2)(at % 2) == 1) likely(at) else 1 - likely(at)) / 2
      }
      assert(math.abs(engine.step(Batch(rows, held.floats, wanted), 0.5f, (_, _) => ()) - losses.sum) < 1e-5)
      val bias = spec.layout.find(_.name.endsWith("bias")).get.offset
      for (output <- 0 until 2) {
        val slope = (0 until rows).map { row =>
          0.5 * weights(row) * (likely(2 * row + output) - labels(row)(output)) / 2
        }.sum
        assert(math.abs(engine.gradients.floats.get(bias + output) - slope) < 1e-5)
      }
      val found = engine.evaluate(Batch(rows, held.floats, wanted))
      assert(found.rows == rows && found.classified.nonEmpty && found.measures("").map(_._1).contains("f1_micro"))
    } finally engine.close()
  }

  for (each <- Variants.all[Loss].collect { case regression: RegressionLoss => regression })
    test(s"${each.name}: loss, gradient and metrics are those of the formulas") {
      withEngine(each.name) { (engine, settings) =>
        val weights = (0 until width + 1).map(engine.parameters.floats.get(_).toDouble)
        val errors = features.zip(targets).map { case (row, target) =>
          row.zip(weights).map { case (value, weight) => value * weight }.sum + weights.last - target
        }
        val loss = each.of(settings)
        val sum = engine.step(batch, 0.5f, (_, _) => ())
        assert(math.abs(sum - errors.map(loss.value).sum) < 1e-5)
        for (column <- 0 to width) {
          val wanted = 0.5 * errors
            .zip(features)
            .map { case (error, row) =>
              loss.slope(error) * row.lift(column).fold(1.0)(_.toDouble)
            }
            .sum
          assert(math.abs(engine.gradients.floats.get(column) - wanted) < 1e-5)
        }
        val found = engine.evaluate(batch)
        assert(math.abs(found.lossSum - errors.map(loss.value).sum) < 1e-5 && found.classified.isEmpty)
        assert(math.abs(found.errors.get.mae - errors.map(math.abs).sum / rows) < 1e-6)
        assert(found.measures("test_").map(_._1) == Seq("test_mae", "test_rmse", "test_r2"))
      }
    }
}
