package sparkdlbench.engine.libtorch

import org.bytedeco.javacpp.FloatPointer
import org.bytedeco.pytorch.Tensor
import sparkdlbench.config.{RunKeys, Variants}
import sparkdlbench.data.Batch
import sparkdlbench.engine.{Engine, EngineVariant}
import sparkdlbench.model.{Initializers, MlpFamily, ModelSpec, RunKeysForTests, SoftmaxFamily}
import sparkdlbench.vector.FlatBuffer

import java.nio.{ByteBuffer, ByteOrder}
import java.util.SplittableRandom

/** Models, seeded synthetic rows and a plain SGD loop for the engine's tests, in this JVM and in forked ones. */
object EngineFixture {
  def mlp(inputs: Int, hidden: String, classes: Int, activation: String = "relu"): ModelSpec =
    new MlpFamily().build(
      Seq(inputs),
      classes,
      RunKeysForTests.settings("model.hidden" -> hidden, "model.activation" -> activation)
    )

  def softmax(inputs: Int, classes: Int): ModelSpec =
    new SoftmaxFamily().build(Seq(inputs), classes, RunKeysForTests.settings())

  def load(
      spec: ModelSpec,
      rows: Int,
      threads: Int = 1,
      settings: Seq[(String, String)] = Nil,
      seed: Long = 1
  ): Engine = {
    val chosen = RunKeysForTests.settings(settings :+ ("seed" -> seed.toString): _*)
    val engine = Variants.find[EngineVariant]("engine", chosen(RunKeys.engine)).load(spec, rows, threads, chosen)
    Initializers.fill(spec, seed, engine.parameters)
    engine
  }

  /** Rows of noise around a centre for each class: learnable, the same bits everywhere. */
  def batch(spec: ModelSpec, rows: Int, seed: Long): Batch = {
    val width = spec.inputShape.product
    val random = new SplittableRandom(seed)
    val features = new FlatBuffer(rows * width)
    val labels = ByteBuffer.allocateDirect(math.max(1, rows) * 8).order(ByteOrder.nativeOrder()).asLongBuffer()
    for (row <- 0 until rows) {
      val label = random.nextInt(spec.classes)
      labels.put(row, label.toLong)
      for (i <- 0 until width) {
        val centre = if (i % spec.classes == label) 1.0 else 0.0
        features.floats.put(row * width + i, (centre + random.nextDouble() - 0.5).toFloat)
      }
    }
    Batch(rows, features.floats, labels)
  }

  def rowsOf(batch: Batch, width: Int): Array[Array[Double]] =
    Array.tabulate(batch.rows, width)((row, i) => batch.features.get(row * width + i).toDouble)

  def labelsOf(batch: Batch): Array[Int] = Array.tabulate(batch.rows)(row => batch.labels.get(row).toInt)

  /** Values of an fp32 tensor without gaps, row-major. */
  def values(tensor: Tensor): Seq[Float] = {
    val found = new Array[Float](tensor.numel().toInt)
    new FloatPointer(tensor.data_ptr()).get(found)
    found.toSeq
  }

  def gradient(engine: Engine, batch: Batch, weight: Float): Array[Float] = {
    engine.step(batch, weight, (_, _) => ())
    engine.gradients.toArray
  }

  /** Seed of the rows of step `step` in `losses`. */
  def batchSeed(step: Int): Long = 1000L + step

  /** Mean losses of `steps` steps of plain SGD, a new batch each. */
  def losses(engine: Engine, spec: ModelSpec, rows: Int, steps: Int, learningRate: Float): Seq[Double] =
    (0 until steps).map { step =>
      val loss = engine.step(batch(spec, rows, batchSeed(step)), 1f / rows, (_, _) => ()) / rows
      for (i <- 0 until engine.parameters.length)
        engine.parameters.floats.put(i, engine.parameters.floats.get(i) - learningRate * engine.gradients.floats.get(i))
      loss
    }
}
