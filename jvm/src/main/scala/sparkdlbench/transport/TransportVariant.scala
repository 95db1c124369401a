package sparkdlbench.transport

import sparkdlbench.config.Variant

/** Over which channel values travel. */
trait TransportVariant extends Variant {

  /** True where the bytes travel in Spark's own channels. */
  def inBand: Boolean
}
