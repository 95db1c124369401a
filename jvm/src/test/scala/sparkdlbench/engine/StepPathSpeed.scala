package sparkdlbench.engine

import sparkdlbench.codec.Codec
import sparkdlbench.config.{RunKeys, Settings, Variants}
import sparkdlbench.data.{BatchPlan, HeldRowStore, RowBlocks, RowStore, Synthetic, TrainingReader, ValueKind}
import sparkdlbench.optimizer.SgdVariant
import sparkdlbench.vector.{FlatBuffer, FloatOps}

import java.nio.{ByteBuffer, ByteOrder, FloatBuffer}
import java.util.Arrays

/**
 * How fast the arithmetic of a step is, by hand: `sbt "jvm/Test/runMain sparkdlbench.engine.StepPathSpeed"`. Prints
 * median and best microseconds of 401 samples after 3,000 warm-up calls. Alternatives that lost stand beside what is
 * used.
 */
object StepPathSpeed {
  private val Values = 814090 // parameters of the MLP 784-1024-10
  private var wanted = Seq.empty[String]
  private val settings = Settings.resolve(Map("optimizer.momentum" -> "0.9"), RunKeys.all)

  /** @param arguments words, one of which what is measured must contain; none: everything */
  def main(arguments: Array[String]): Unit = {
    wanted = arguments.toSeq
    println(f"${"what"}%-64s ${"median us"}%10s ${"best us"}%10s")
    additions()
    Variants.all[Codec].foreach(codecs)
    optimizers()
    batches()
  }

  private def additions(): Unit = {
    val (target, source) = (random(1), random(2))
    val (sums, values) = (new Array[Float](Values), new Array[Float](Values))
    time("memcpy between direct buffers")(FloatOps.copy(source, target))
    time("addInto (staged through arrays of 4 KiB)")(FloatOps.addInto(target, source))
    time("alternative: loop over direct buffers")(addDirectly(target, source))
    time("bound: loop over two whole heap arrays")(FloatOps.addArrays(sums, values, Values))
    time("sumInto of 4 sources")(FloatOps.sumInto(target, Seq(source, source, source, source)))
    time("scale")(FloatOps.scale(target, 0.999f))
  }

  private def addDirectly(target: FloatBuffer, source: FloatBuffer): Unit = {
    val count = target.remaining()
    var i = 0
    while (i < count) { target.put(i, target.get(i) + source.get(i)); i += 1 }
  }

  private def codecs(variant: Codec): Unit = {
    val codec = variant.configured(settings)
    val (source, target, residual) = (random(1), random(2), new FlatBuffer(Values).floats)
    FloatOps.scale(source, 4e-4f) // about 1.2 % of the values are beyond the default threshold
    val message = ByteBuffer.allocateDirect(codec.maxBytes(Values).toInt).order(ByteOrder.nativeOrder())
    time(s"${codec.name} encode")(codec.encode(source, message))
    if (codec.keepsResidual) time(s"${codec.name} encode with residual (sources of both signs in turn)") {
      FloatOps.scale(source, -1)
      codec.encode(source, message, residual)
    }
    message.limit(codec.encode(source, message))
    time(s"${codec.name} decode")(codec.decode(message, target))
    time(s"${codec.name} decodeAdd")(codec.decodeAdd(message, target))
    if (codec.name == "threshold") {
      FloatOps.scale(source, 10)
      message.clear()
      time("threshold encode, 80 % sent")(codec.encode(source, message))
      time("threshold decodeAdd, 80 % sent")(codec.decodeAdd(message, target))
    }
  }

  private def optimizers(): Unit = {
    val (weights, gradient) = (random(1), random(2))
    val plain = new SgdVariant().create(Values, settings.updated(SgdVariant.momentum, "0"))
    val momentum = new SgdVariant().create(Values, settings)
    FloatOps.scale(gradient, 1e-6f)
    time("sgd")(plain.update(weights, gradient, 0))
    time("sgd with momentum")(momentum.update(weights, gradient, 0))
  }

  private def batches(): Unit = {
    val pixels = RowBlocks.onHeap(60000, 784)
    val store = new HeldRowStore(pixels, ValueKind.UInt8, new Array[Int](60000), 1.0 / 255)
    val synthetic = new Synthetic().open(settings.updated(Synthetic.rows, "60000"), null).train
    Seq("bytes" -> store, "synthetic" -> synthetic).foreach { case (name, rows: RowStore) =>
      val reader = new TrainingReader(rows, BatchPlan(60000, 128, 2), seed = 1, rank = 1)
      var step = 0L
      time(s"64 rows x 784, $name") { reader.read(step % 468); step += 1 }
    }
  }

  private def random(seed: Int): FloatBuffer = {
    val generator = new scala.util.Random(seed)
    val buffer = new FlatBuffer(Values).floats
    (0 until Values).foreach(i => buffer.put(i, generator.nextGaussian().toFloat))
    buffer
  }

  private def time(name: String, warmUp: Int = 3000)(call: => Unit): Unit = if (
    wanted.isEmpty || wanted.exists(word => name.contains(word))
  ) {
    (0 until warmUp).foreach(_ => call)
    val samples = Array.fill(401) {
      val start = System.nanoTime()
      call
      (System.nanoTime() - start) / 1e3
    }
    Arrays.sort(samples)
    println(f"$name%-64s ${samples(200)}%10.1f ${samples(0)}%10.1f")
  }
}
