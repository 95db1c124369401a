package sparkdlbench.engine.libtorch

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.collective.VectorGather
import sparkdlbench.data.{Batch, RowIds}
import sparkdlbench.engine.Engine
import sparkdlbench.model.{ModelSpec, ParityModels}
import sparkdlbench.transport.ThreadGroup
import sparkdlbench.vector.Slices

import java.nio.{ByteBuffer, ByteOrder, FloatBuffer, LongBuffer}

/** Ranks as threads, each with an engine and a share of the rows, beside one engine with all rows and PyTorch's batch normalisation. */
class SyncBatchNormSuite extends AnyFunSuite {
  private case class Found(loss: Double, gradient: Seq[Float], statistics: Seq[Float])

  private val steps = 3
  private val local = ParityModels.everyLayer
  private val sync = synchronised(local)
  private val deep = ParityModels.family("vgg-16", Seq(3, 32, 32))

  private def synchronised(spec: ModelSpec): ModelSpec = spec.copy(layers = spec.layers.map { layer =>
    if (layer.kind == "batch-norm") layer.copy(options = layer.options + ("sync" -> 1.0)) else layer
  })

  /** Rows of step `step`; `offset` is added to all values. */
  private def whole(spec: ModelSpec, rows: Int, step: Int, offset: Float): Batch = {
    val batch = ParityModels.batch(spec, rows, step)
    (0 until batch.features.capacity).foreach(i => batch.features.put(i, batch.features.get(i) + offset))
    batch
  }

  /** Copies: the rows' own memory would be freed with the batch. */
  private def share(spec: ModelSpec, batch: Batch, from: Int, until: Int): Batch = {
    val width = spec.inputShape.product
    val features: FloatBuffer =
      ByteBuffer.allocateDirect(4 * width * (until - from) + 4).order(ByteOrder.nativeOrder()).asFloatBuffer()
    (from * width until until * width).foreach(i => features.put(i - from * width, batch.features.get(i)))
    val labels: LongBuffer =
      ByteBuffer.allocateDirect(8 * (until - from) + 8).order(ByteOrder.nativeOrder()).asLongBuffer()
    (from until until).foreach(row => labels.put(row - from, batch.labels.get(row)))
    Batch(until - from, features, labels, new RowIds(Array.range(from, until), 0), batch.step)
  }

  private def train(engine: Engine, batches: Seq[Batch], rows: Int): Found = {
    val losses = batches.map(batch => engine.step(batch, 1f / rows, (_, _) => ()))
    Found(losses.sum, engine.gradients.toArray.toSeq, engine.statistics.toArray.toSeq)
  }

  private def one(spec: ModelSpec, rows: Int, offset: Float): Found = {
    val engine = EngineFixture.load(spec, rows)
    try train(engine, (0 until steps).map(whole(spec, rows, _, offset)), rows)
    finally engine.close()
  }

  private def many(spec: ModelSpec, rows: Int, ranks: Int, offset: Float): IndexedSeq[Found] = ThreadGroup.run(ranks) {
    transport =>
      val exchange = new VectorGather(transport, spec.exchanges)
      val engine = EngineFixture.load(spec, rows)
      try {
        engine.join(exchange)
        val slices = Slices(rows, ranks)
        val (from, until) = (slices.from(transport.rank), slices.until(transport.rank))
        train(engine, (0 until steps).map(step => share(spec, whole(spec, rows, step, offset), from, until)), rows)
      } finally engine.close()
  }

  private def assertSame(ranks: IndexedSeq[Found], single: Found, spec: ModelSpec): Unit = {
    assert(math.abs(ranks.map(_.loss).sum / single.loss - 1) < 1e-4)
    assert(ranks.map(_.statistics).distinct.size == 1, "running statistics differ between ranks")
    near(ranks.head.statistics, single.statistics, "running statistics", single.statistics.map(_.abs).max.toDouble)
    val sums = ranks.map(_.gradient).reduce((a, b) => a.zip(b).map { case (x, y) => x + y })
    val whole = math.sqrt(single.gradient.map(value => value.toDouble * value).sum)
    spec.layout.foreach { tensor =>
      def part(values: Seq[Float]) = values.slice(tensor.offset, tensor.offset + tensor.length)
      val norm = math.sqrt(part(single.gradient).map(value => value.toDouble * value).sum)
      // Some gradients are zero but for rounding: those of a bias that batch normalisation takes away again.
      near(part(sums), part(single.gradient), s"gradient of ${tensor.name}", math.max(norm, 1e-2 * whole))
    }
  }

  private def near(found: Seq[Float], expected: Seq[Float], what: String, scale: Double): Unit = {
    val apart = found.zip(expected).map { case (a, b) => math.abs(a.toDouble - b) }.max
    assert(apart <= 1e-4 * scale, s"$what: $apart apart, of $scale")
    ()
  }

  for ((rows, ranks) <- Seq((8, 1), (8, 2), (13, 2), (7, 3), (2, 4)))
    test(s"$ranks ranks with the shares of $rows rows are one with all of them") {
      assertSame(many(sync, rows, ranks, 0f), one(local, rows, 0f), local)
    }

  test("values far from zero lose nothing: the same within 1e-4 at a mean of 100 deviations") {
    assertSame(many(sync, 8, 2, 30f), one(local, 8, 30f), local)
  }

  test("a deep net: VGG-16") {
    assertSame(many(synchronised(deep), 4, 2, 0f), one(deep, 4, 0f), deep)
  }

  test("without it half batches are not the whole batch") {
    val halves = many(sync, 8, 2, 0f)
    val apart = ThreadGroup.run(2) { transport =>
      val engine = EngineFixture.load(local, 8)
      val from = 4 * transport.rank
      try train(engine, (0 until steps).map(step => share(local, whole(local, 8, step, 0f), from, from + 4)), 8)
      finally engine.close()
    }
    assert(math.abs(apart.map(_.loss).sum / halves.map(_.loss).sum - 1) > 1e-3)
  }

  test("each rank sends its vectors to every other, and nothing besides") {
    val lengths = sync.exchanges
    assert(lengths == Seq(1 + 2 * 8, 2 * 8, 1 + 2 * 12, 2 * 12))
    val bytes = ThreadGroup.run(3) { transport =>
      val exchange = new VectorGather(transport, lengths)
      for (_ <- 0 until 5; length <- lengths) {
        val gathered = exchange.gather(Array.fill(length)(transport.rank.toFloat)).take(3 * length).toSeq
        assert(gathered == (0 until 3).flatMap(rank => Seq.fill(length)(rank.toFloat)))
      }
      transport.flush()
      transport.bytesSent.filterNot(_._1.endsWith(".framing")).values.sum
    }
    assert(bytes == Seq.fill(3)(5L * 2 * 4 * lengths.sum))
  }
}
