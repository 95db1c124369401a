package sparkdlbench.data

import sparkdlbench.common.SplitMix

/**
 * The order in which an epoch visits the training rows: a Fisher-Yates shuffle of 0 until rows, driven by SplitMix64
 * from the state mix(seed xor mix(epoch)). A function of its three arguments alone: not of workers, partitions or
 * engine.
 */
object EpochOrder {

  /** @return row ids, each exactly once; 4 bytes a row */
  def permutation(seed: Long, epoch: Int, rows: Int): Array[Int] =
    FisherYates.permutation(rows, SplitMix.mix(seed ^ SplitMix.mix(epoch.toLong)))
}

/** Fisher and Yates's shuffle, driven by SplitMix64. */
private[data] object FisherYates {

  /** The numbers from 0 until `count`, each once, in an order that `state` alone decides. */
  def permutation(count: Int, state: Long): Array[Int] = {
    val random = new SplitMix(state)
    val out = Array.range(0, count)
    var last = count - 1
    while (last > 0) {
      val other = random.nextInt(last + 1)
      val swapped = out(last)
      out(last) = out(other)
      out(other) = swapped
      last -= 1
    }
    out
  }
}
