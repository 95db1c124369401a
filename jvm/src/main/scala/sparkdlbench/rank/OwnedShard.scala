package sparkdlbench.rank

import sparkdlbench.codec.Codec
import sparkdlbench.config.Settings
import sparkdlbench.optimizer.{Clipping, LayerwiseOptimizer, Optimizer}
import sparkdlbench.vector.{FlatBuffer, FloatOps}

import java.nio.{ByteBuffer, FloatBuffer}

/**
 * Values [`from`, `from` + length) of the model at the one place that changes them: the weights in full precision, their
 * optimiser, and the sum of all ranks' gradients. A bucket's owner, a shard's server, a rank with its slice in a job per step
 * and the driver of topology `tree` change weights by it alone.
 *
 * A step: the sum is made (`begin`, then `add` in the order of ranks, or by whoever writes to `gradient`), `update`. Makes
 * nothing anew in a step. Used by one thread at a time.
 *
 * @param weights
 *   in full precision
 * @param gradient
 *   the sum, as long as the weights; empty where updates are made along gradients that lie elsewhere
 * @param travelling
 *   where an update leaves the weights besides, for the way to the other ranks that rounds them; null where `weights` are
 *   what travels
 */
final class OwnedShard private (
    val from: Int,
    val weights: FloatBuffer,
    val gradient: FloatBuffer,
    travelling: FloatBuffer,
    optimizer: Optimizer
) {
  private val layerwise = Option(optimizer).collect { case each: LayerwiseOptimizer => each }
  def length: Int = weights.capacity

  /** The sum of no gradient. */
  def begin(): Unit = FloatOps.fill(gradient, 0f)

  /** Adds a rank's part of the gradient: values [`first`, `end`) of the shard, as they travelled. */
  def add(codec: Codec, message: ByteBuffer, first: Int, end: Int): Unit =
    codec.decodeAdd(message, gradient.slice(first, end - first))

  /** One step of the optimiser along the sum; step 0 is the run's first. */
  def update(step: Long): Unit = update(gradient, step)

  /** The same along a gradient that lies elsewhere. */
  def update(along: FloatBuffer, step: Long): Unit = {
    optimizer.update(weights, along, step)
    show()
  }

  /** The sum itself becomes the weights. */
  def replace(): Unit = {
    FloatOps.copy(gradient, weights)
    show()
  }

  private def show(): Unit = if (travelling != null) FloatOps.copy(weights, travelling)

  /** A step where the shard is the model's whole vector: what needs the whole gradient, or whole layers, is known here. */
  def updateWhole(settings: Settings, tensors: Int, step: Long): Unit = {
    Clipping.whole(settings, gradient)
    Optimizer.updateWhole(optimizer, weights, gradient, tensors, step)
    show()
  }

  def gradientSquares: Double = FloatOps.sumOfSquares(gradient)
  def scale(factor: Float): Unit = FloatOps.scale(gradient, factor)

  /** As those of `LayerwiseOptimizer`; nothing to do for another optimiser. */
  def addSquares(into: Array[Double]): Unit = layerwise.foreach(_.addSquares(weights, gradient, into))
  def squaresAre(whole: Array[Double]): Unit = layerwise.foreach(_.squaresAre(whole))

  /** A copy of the weights. */
  def values: Array[Float] = {
    val copied = new Array[Float](length)
    weights.get(0, copied)
    copied
  }

  /** The shard's part of a checkpoint. */
  def state: Seq[StateRange] = StateRange(OwnedShard.Weights, from, values) +:
    optimizer.state.toSeq.map { case (name, own) => StateRange(OwnedShard.stateName(name), from, own.clone()) }

  /** @param vector a checkpoint's vectors of the whole model by name */
  def restore(vector: String => Array[Float]): Unit = {
    weights.put(0, vector(OwnedShard.Weights), from, length)
    optimizer.state.foreach { case (name, own) =>
      System.arraycopy(vector(OwnedShard.stateName(name)), from, own, 0, own.length)
    }
  }
}

object OwnedShard {

  /** The weights' name in a checkpoint. */
  val Weights = "weights"

  /** Of an optimiser's vector. */
  def stateName(vector: String): String = s"optimizer.$vector"

  /** Names of the vectors that checkpoints have of shards. @param optimizer names of the optimiser's vectors */
  def kept(optimizer: Seq[String]): Seq[String] = Weights +: optimizer.map(stateName)

  /**
   * In an engine's own buffers, in whose gradient the sum is made.
   *
   * @param computed
   *   the weights that the engine computes with, which are the values from `from` on
   * @param rounded
   *   whether the weights travel rounded, so that those in full precision need memory of their own
   */
  def within(
      from: Int,
      computed: FloatBuffer,
      gradient: FloatBuffer,
      rounded: Boolean,
      optimizer: Optimizer
  ): OwnedShard =
    if (rounded) new OwnedShard(from, copyOf(computed).floats, gradient, computed, optimizer)
    else new OwnedShard(from, computed, gradient, null, optimizer)

  /** In memory of its own: `weights`, which are the values from `from` on, and as much for the sum. */
  def apart(from: Int, weights: FlatBuffer, optimizer: Optimizer): OwnedShard =
    new OwnedShard(from, weights.floats, new FlatBuffer(weights.length).floats, null, optimizer)

  /** The same without a sum: each update is along a gradient that is given to it. */
  def unsummed(from: Int, weights: FlatBuffer, optimizer: Optimizer): OwnedShard =
    new OwnedShard(from, weights.floats, new FlatBuffer(0).floats, null, optimizer)

  /** Values in memory of their own. */
  def copyOf(values: FloatBuffer): FlatBuffer = {
    val copied = new FlatBuffer(values.remaining)
    FloatOps.copy(values, copied.floats)
    copied
  }
}
