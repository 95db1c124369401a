package sparkdlbench.rank

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.codec.{Bf16, Codec, Fp32}
import sparkdlbench.config.{RunKeys, Settings}
import sparkdlbench.model.ParameterSpec
import sparkdlbench.optimizer.{Clipping, LarsVariant, LearningRateSchedule, Optimizer, ParameterSlice, SgdVariant}
import sparkdlbench.vector.FlatBuffer

import java.nio.{ByteBuffer, ByteOrder, FloatBuffer}
import scala.util.Random

/** Sum, update and checkpoint of an owner, beside the same done by hand, bit for bit. */
class OwnedShardSuite extends AnyFunSuite {
  private val random = new Random(7)
  private val length = 2500
  private val (from, until) = (700, 1900)
  private def vector(): Array[Float] = Array.fill(length)(random.nextGaussian().toFloat)
  private val start = vector()
  private val gradients = Seq.fill(3)(vector())
  private val keys =
    (RunKeys.own ++ new SgdVariant().keys ++ new LarsVariant().keys ++ LearningRateSchedule.keys :+ Clipping.norm).distinct
  private def settings(entries: (String, String)*): Settings = Settings.resolve(entries.toMap, keys)
  private val momentum = settings("optimizer.learning_rate" -> "0.5", "optimizer.momentum" -> "0.9")

  private def sgd(of: Range): Optimizer = new SgdVariant().create(of.size, momentum)

  private def filled(values: Array[Float]): FlatBuffer = {
    val buffer = new FlatBuffer(values.length)
    buffer.floats.put(0, values)
    buffer
  }

  private def encoded(codec: Codec, values: FloatBuffer): ByteBuffer = {
    val bytes = ByteBuffer.allocateDirect(codec.maxBytes(values.remaining).toInt).order(ByteOrder.nativeOrder())
    bytes.limit(codec.encode(values, bytes))
    bytes
  }

  private def floats(buffer: FloatBuffer): Seq[Float] = {
    val copied = new Array[Float](buffer.remaining)
    buffer.get(buffer.position(), copied)
    copied.toSeq
  }

  /** The owned weights after some steps along the sum of all gradients, by hand. */
  private def byHand(steps: Int): Seq[Float] = {
    val (weights, optimizer) = (filled(start.slice(from, until)), sgd(from until until))
    val sum = new Array[Float](until - from)
    for (gradient <- gradients; i <- sum.indices) sum(i) += gradient(from + i)
    (0 until steps).foreach(step => optimizer.update(weights.floats, filled(sum).floats, step.toLong))
    weights.toArray.toSeq
  }

  private def apart(): OwnedShard =
    OwnedShard.apart(from, filled(start.slice(from, until)), sgd(from until until))

  private def sumUp(shard: OwnedShard, cut: Int): Unit = {
    shard.begin()
    for (gradient <- gradients; (first, end) <- Seq((0, cut), (cut, until - from)))
      shard.add(new Fp32, encoded(new Fp32, filled(gradient).floatSlice(from + first, from + end)), first, end)
  }

  test("parts that arrive in pieces, in the order of ranks, are the sum; each step begins anew") {
    for (cut <- Seq(0, 1, 500, until - from)) {
      val shard = apart()
      for (step <- 0 until 3) { sumUp(shard, cut); shard.update(step.toLong) }
      assert(shard.values.toSeq == byHand(3), s"cut at $cut")
    }
  }

  test("within an engine's buffers it updates those, and nothing beside its range") {
    for (rounded <- Seq(false, true)) {
      val (parameters, gradient) = (filled(start), new FlatBuffer(length))
      for (i <- 0 until length) gradient.floats.put(i, (gradients(0)(i) + gradients(1)(i)) + gradients(2)(i))
      val shard = OwnedShard.within(
        from,
        parameters.floatSlice(from, until),
        gradient.floatSlice(from, until),
        rounded,
        sgd(from until until)
      )
      for (step <- 0 until 3) {
        shard.update(step.toLong)
        assert(floats(parameters.floatSlice(from, until)) == shard.values.toSeq)
        // What travelled comes back rounded; the owner's own weights do not hear of it.
        if (rounded) {
          val travelling = parameters.floatSlice(from, until)
          new Bf16().decode(encoded(new Bf16, travelling), travelling)
          assert(floats(travelling) != shard.values.toSeq)
        }
      }
      assert(shard.values.toSeq == byHand(3), s"rounded: $rounded")
      val beside = parameters.toArray
      assert(beside.take(from).sameElements(start.take(from)) && beside.drop(until).sameElements(start.drop(until)))
    }
  }

  test("an update along a gradient that lies elsewhere needs no sum") {
    val shard = OwnedShard.unsummed(from, filled(start.slice(from, until)), sgd(from until until))
    val sum = apart()
    for (step <- 0 until 3) { sumUp(sum, 10); shard.update(sum.gradient, step.toLong) }
    assert(shard.values.toSeq == byHand(3) && shard.gradient.remaining == 0)
  }

  test("a checkpoint of it goes on to the same bits, under the names that checkpoints have always had") {
    val (whole, first) = (apart(), apart())
    for (step <- 0 until 2) { sumUp(first, 10); first.update(step.toLong) }
    val saved = first.state
    assert(
      saved.map(range => (range.name, range.from, range.values.length)) ==
        Seq(("weights", from, until - from), ("optimizer.velocity", from, until - from))
    )
    assert(OwnedShard.kept(Seq("velocity")) == saved.map(_.name))
    val next = apart()
    next.restore { name =>
      val vector = Array.fill(length)(Float.NaN)
      val range = saved.find(_.name == name).get
      System.arraycopy(range.values, 0, vector, range.from, range.values.length)
      vector
    }
    sumUp(next, 10)
    next.update(2)
    for (step <- 0 until 3) { sumUp(whole, 10); whole.update(step.toLong) }
    assert(next.values.toSeq == whole.values.toSeq)
    assert(saved.head.values.toSeq != next.values.toSeq) // copies, not the shard's memory
  }

  test("where it is the whole model, clipping and whole layers' lengths are known") {
    val layout = Seq(("w", 2000, 0), ("b", 500, 2000)).map { case (name, size, at) =>
      ParameterSpec(name, Seq(size), at, "zero")
    }
    val chosen = settings("optimizer.learning_rate" -> "0.5", "clip_norm" -> "3")
    def lars() = new LarsVariant().create(ParameterSlice(0, length, layout), chosen)
    val shard = OwnedShard.apart(0, filled(start), lars())
    val (weights, gradient, optimizer) = (filled(start), filled(gradients.head), lars())
    for (step <- 0 until 2) {
      shard.begin()
      shard.add(new Fp32, encoded(new Fp32, filled(gradients.head).floats), 0, length)
      assert(math.sqrt(shard.gradientSquares) > 3)
      shard.updateWhole(chosen, layout.size, step.toLong)
      assert(math.abs(math.sqrt(shard.gradientSquares) - 3) < 1e-4)
      gradient.floats.put(0, gradients.head)
      Clipping.whole(chosen, gradient.floats)
      Optimizer.updateWhole(optimizer, weights.floats, gradient.floats, layout.size, step.toLong)
    }
    assert(shard.values.toSeq == weights.toArray.toSeq)
  }

  test("an empty shard takes part in everything") {
    val shard = OwnedShard.apart(5, new FlatBuffer(0), sgd(0 until 0))
    shard.begin()
    shard.update(0)
    assert(shard.length == 0 && shard.values.isEmpty && shard.gradientSquares == 0.0)
  }
}
