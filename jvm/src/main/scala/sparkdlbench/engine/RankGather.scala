package sparkdlbench.engine

/**
 * How a layer hears of the other ranks' rows in the middle of a pass. A layer asks, and the training loop answers: an engine knows
 * no transport, and a transport no layer. Used by the thread that computes.
 */
trait RankGather {

  /** Number of ranks, at least 1. */
  def size: Int

  /**
   * Every rank's `values`. A collective call: all ranks make the same calls, with vectors of the same lengths in the same order,
   * in every step.
   *
   * @return
   *   size × values.length, rank after rank; valid until the next call
   */
  def gather(values: Array[Float]): Array[Float]
}

object RankGather {

  /** The exchange of a rank that trains by itself. */
  val alone: RankGather = new RankGather {
    def size: Int = 1
    def gather(values: Array[Float]): Array[Float] = values
  }
}
