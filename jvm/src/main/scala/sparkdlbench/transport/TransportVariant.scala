package sparkdlbench.transport

import sparkdlbench.config.{Axis, Key, RunKeys, Settings, Variant, Variants}
import sparkdlbench.vector.VectorMemory

/** Over which channel values travel. */
trait TransportVariant extends Variant {

  /** True where the bytes travel in Spark's own channels. */
  def inBand: Boolean

  /** Where a rank's vectors best lie, for its collectives to reach them. @param ranks of the run */
  def vectors(settings: Settings, ranks: Int): VectorMemory = VectorMemory.Own
}

object TransportVariant {

  /** In place of a name: the best one that the session supports. */
  val Auto: String = RunKeys.transport.default

  /** Channels that one may look for here, and where they are. */
  val elsewhere: Map[String, String] = Map(
    "gloo" ->
      ("gloo comes with PyTorch, whose workers are processes of their own, so Spark's tasks have no part in it: the peer pytorch-ddp trains the " +
        "same model over it (`sparkdl-bench compare`), and `sparkdl-bench net` measures the peer gloo beside our transports.")
  )
}

final class TransportAxis extends Axis {
  def place = 3
  def name = "transport"
  def key: Key[String] = RunKeys.transport
  def variants: Seq[Variant] = Variants.all[TransportVariant]

  /** Which one `auto` stands for is known when the session is. */
  override def check(settings: Settings): Unit =
    if (settings(key) != TransportVariant.Auto)
      Variants.find[TransportVariant](name, settings(key), TransportVariant.elsewhere): Unit
}
