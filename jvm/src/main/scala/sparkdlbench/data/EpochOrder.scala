package sparkdlbench.data

import sparkdlbench.common.SplitMix

/**
 * The order in which an epoch visits the training rows: a Fisher-Yates shuffle of 0 until rows, driven by SplitMix64
 * from the state mix(seed xor mix(epoch)). A function of its three arguments alone: not of workers, partitions or
 * engine.
 */
object EpochOrder {

  /** @return row ids, each exactly once; 4 bytes a row */
  def permutation(seed: Long, epoch: Int, rows: Int): Array[Int] = {
    val random = new SplitMix(SplitMix.mix(seed ^ SplitMix.mix(epoch.toLong)))
    val ids = Array.range(0, rows)
    var last = rows - 1
    while (last > 0) {
      val other = random.nextInt(last + 1)
      val swapped = ids(last)
      ids(last) = ids(other)
      ids(other) = swapped
      last -= 1
    }
    ids
  }
}
