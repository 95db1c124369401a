package sparkdlbench.job

/**
 * Name of one block of one step.
 *
 * @param kind
 *   `gradient` (part of rank `from`'s gradient, for owner `to`) or `weights` (slice of owner `from`; `to` is -1: for all)
 * @param part
 *   number of this piece of a slice that is over `slice_limit`, from 0
 */
final case class SliceBlock(runId: String, kind: String, step: Long, from: Int, to: Int, part: Int) {
  def print: String = s"sparkdl:$runId:$kind:$step:$from:$to:$part"
}

object SliceBlock {
  val Gradient = "gradient"
  val Weights = "weights"
  val Everyone: Int = -1
}
