package sparkdlbench.engine.libtorch

import sparkdlbench.data.Batch
import sparkdlbench.engine.{Engine, Evaluation, RankGather}
import sparkdlbench.loss.BatchLoss
import sparkdlbench.model.{Initializers, ModelSpec}
import sparkdlbench.vector.{FlatBuffer, VectorMemory}

import java.nio.FloatBuffer
import java.util.{LinkedHashMap => JavaLinkedHashMap, Map => JavaMap}

/**
 * Forward and backward passes written out layer by layer over libtorch's kernels, without autograd: gradients are written
 * straight into the flat buffer, and a step allocates nothing that grows with the model.
 *
 * @param maxRows
 *   most rows of a batch
 * @param threads
 *   compute threads
 * @param seed
 *   of dropout masks
 * @param bf16
 *   whether convolutions and linear layers compute in bf16
 * @param inJvm
 *   a loss that is computed here; None: softmax cross-entropy, with `classWeights` and without rows whose label is `ignored`
 * @param vectors
 *   where parameters and gradients lie
 */
private[libtorch] final class LibtorchEngine(
    spec: ModelSpec,
    maxRows: Int,
    threads: Int,
    seed: Long,
    bf16: Boolean,
    libraries: NativeLibraries,
    inJvm: Option[BatchLoss] = None,
    classWeights: Option[Array[Float]] = None,
    ignored: Option[Int] = None,
    vectors: VectorMemory = VectorMemory.Own
) extends Engine {
  require(maxRows >= 1 && threads >= 1, s"maxRows $maxRows, threads $threads")
  val parameters = vectors.vector(spec.parameterCount)
  val gradients = vectors.vector(spec.parameterCount)
  val statistics = new FlatBuffer(spec.statisticsCount)
  Initializers.fillStatistics(spec, statistics)
  private val width = spec.inputShape.product
  private val logits = new FlatBuffer(Math.multiplyExact(maxRows, spec.classes))
  private val logitGradients = new FlatBuffer(logits.length)
  private val ownFeatures = new FlatBuffer(Math.multiplyExact(maxRows, width))
  private val state = new PassState
  private val (network, loss): (TorchNetwork, LossPass) = configured {
    (
      new TorchNetwork(
        spec,
        maxRows,
        seed,
        bf16,
        parameters,
        gradients,
        statistics,
        logits,
        logitGradients,
        state
      ),
      inJvm.fold[LossPass](
        new SoftmaxCrossEntropy(maxRows, spec.classes, logits, logitGradients, classWeights, ignored)
      ) {
        new JvmPass(_, logits, logitGradients)
      }
    )
  }
  private val passes = new PassCache
  private var closed = false

  def join(exchange: RankGather): Unit = state.exchange = exchange

  def step(batch: Batch, weight: Float, onBucketReady: (Int, Int) => Unit): Double = configured {
    if (batch.rows == 0) {
      network.passWithoutRows()
      zeroGradients()
      onBucketReady(0, gradients.length)
      0.0
    } else {
      val bound = forward(batch, training = true)
      val lossSum = bound.loss.forward(batch.labels)
      bound.loss.backward(batch.labels, weight)
      bound.pass.backward(onBucketReady)
      lossSum
    }
  }

  def evaluate(batch: Batch): Evaluation = configured {
    if (batch.rows == 0) Evaluation(0, 0.0, 0)
    else forward(batch, training = false).loss.evaluate(batch.labels)
  }

  def predict(batch: Batch, scores: FloatBuffer): Unit = configured {
    if (batch.rows > 0) {
      forward(batch, training = false)
      scores.put(0, logits.floats, 0, batch.rows * spec.classes)
      ()
    }
  }

  def facts: Map[String, String] = libraries.facts ++ libraries.threadFacts(threads) ++ Map(
    "engine" -> "libtorch",
    "threads" -> threads.toString,
    "compute" -> (if (bf16) "bf16" else "fp32")
  )

  def close(): Unit = if (!closed) {
    configured {
      passes.close()
      loss.close()
      network.close()
    }
    closed = true
  }

  private def forward(batch: Batch, training: Boolean): BoundPass = {
    val bound = passes.of(batch)
    state.training = training
    state.step = batch.step
    state.ids = batch.ids
    bound.pass.forward()
    bound
  }

  private def configured[T](body: => T): T = {
    if (closed) throw new IllegalStateException("the engine is closed")
    libraries.pinThreads(threads)
    Tensors.inference(body)
  }

  private def zeroGradients(): Unit = {
    var index = 0
    while (index < gradients.length) {
      gradients.floats.put(index, 0f)
      index += 1
    }
  }

  private final class BoundPass(val pass: TorchNetwork#Pass, val loss: BoundLoss) extends AutoCloseable {
    def close(): Unit = {
      pass.close()
      loss.close()
    }
  }

  /**
   * The views for the row counts and feature buffers used last. A loop needs two or three (its share of the batch, the
   * evaluation's, the rest); the bound keeps memory flat whatever it does.
   */
  private final class PassCache extends AutoCloseable {
    private val capacity = 8
    private val held = new JavaLinkedHashMap[(Int, Long), BoundPass](16, 0.75f, true) {
      override def removeEldestEntry(eldest: JavaMap.Entry[(Int, Long), BoundPass]): Boolean = {
        val full = size > capacity
        if (full) eldest.getValue.close()
        full
      }
    }

    def of(batch: Batch): BoundPass = {
      require(
        batch.rows <= maxRows,
        s"a batch of ${batch.rows} rows was given to an engine loaded for at most $maxRows"
      )
      val features = aligned(batch)
      val key = (batch.rows, Tensors.address(features))
      val found = held.get(key)
      if (found != null) found
      else {
        val made = new BoundPass(network.pass(batch.rows, features), loss.bind(batch.rows))
        held.put(key, made)
        made
      }
    }

    /** Features at a cache line's start are used where they are; others are copied, or their place could change the bits. */
    private def aligned(batch: Batch): FloatBuffer =
      if (batch.features.isDirect && Tensors.address(batch.features) % FlatBuffer.Alignment == 0) batch.features
      else {
        val source = batch.features.duplicate()
        source.limit(batch.rows * width)
        ownFeatures.floats.duplicate().put(source)
        ownFeatures.floats
      }

    def close(): Unit = {
      held.values.forEach(_.close())
      held.clear()
    }
  }
}
