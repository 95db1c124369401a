package sparkdlbench.transport

import sparkdlbench.config.Variant

/** Over which channel values travel. */
trait TransportVariant extends Variant {

  /** True where the bytes travel in Spark's own channels. */
  def inBand: Boolean
}

object TransportVariant {

  /** In place of a name: the best one that the session supports. */
  val Auto = "auto"

  /** Channels that one may look for here, and where they are. */
  val elsewhere: Map[String, String] = Map(
    "gloo" ->
      ("gloo comes with PyTorch, whose workers are processes of their own, so Spark's tasks have no part in it: the peer pytorch-ddp trains the " +
        "same model over it (`sparkdl-bench compare`), and `sparkdl-bench net` measures the peer gloo beside our transports.")
  )
}
