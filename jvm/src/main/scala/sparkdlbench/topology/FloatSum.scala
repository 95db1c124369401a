package sparkdlbench.topology

import java.nio.FloatBuffer

/**
 * Sums vectors in a fixed order, in fp32. Direct buffers are read block by block into arrays that stay in the first-level
 * cache: the JIT compiler turns loops over arrays, not over direct buffers, into vector instructions. One thread at a time.
 */
private[topology] final class FloatSum {
  private val sum = new Array[Float](FloatSum.Block)
  private val part = new Array[Float](FloatSum.Block)

  /** target = (parts(0) + parts(1)) + …, all from index 0 to `length`; `target` may be one of the parts. */
  def inOrder(parts: Array[FloatBuffer], length: Int, target: FloatBuffer): Unit = {
    var from = 0
    while (from < length) {
      val count = math.min(FloatSum.Block, length - from)
      parts(0).get(from, sum, 0, count)
      var index = 1
      while (index < parts.length) {
        parts(index).get(from, part, 0, count)
        FloatSum.add(sum, part, count)
        index += 1
      }
      target.put(from, sum, 0, count)
      from += count
    }
  }

  /** target = target + part, from index 0 to `length`. */
  def add(target: FloatBuffer, part: FloatBuffer, length: Int): Unit = {
    var from = 0
    while (from < length) {
      val count = math.min(FloatSum.Block, length - from)
      target.get(from, sum, 0, count)
      part.get(from, this.part, 0, count)
      FloatSum.add(sum, this.part, count)
      target.put(from, sum, 0, count)
      from += count
    }
  }
}

private[topology] object FloatSum {

  /** Values a block: two blocks of 8 KiB fit the first-level cache of every CPU. */
  private val Block = 2048

  /** A method of its own, so that the JIT compiler sees one simple loop. */
  private def add(target: Array[Float], part: Array[Float], count: Int): Unit = {
    var index = 0
    while (index < count) {
      target(index) += part(index)
      index += 1
    }
  }
}
