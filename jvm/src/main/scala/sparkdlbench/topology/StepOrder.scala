package sparkdlbench.topology

/** Holds callers to the order contribute, reduce, publish, collect, flush, and to sequences 0, 1, 2, …; per bucket. */
private[topology] final class StepOrder(buckets: Int) {
  private val calls = new Array[Int](buckets)
  private val sequences = new Array[Long](buckets)

  /** Bucket `bucket` goes from `call` to the next one. */
  def enter(bucket: Int, sequence: Long, call: Int): Unit = {
    if (calls(bucket) != call || sequences(bucket) != sequence) fail(bucket, sequence, call)
    calls(bucket) = call + 1
  }

  def flushed(): Unit = {
    var bucket = 0
    while (bucket < buckets) {
      if (calls(bucket) == StepOrder.Names.length) {
        calls(bucket) = 0
        sequences(bucket) += 1
      }
      bucket += 1
    }
  }

  private def fail(bucket: Int, sequence: Long, call: Int): Nothing = {
    val expected = if (calls(bucket) < StepOrder.Names.length) StepOrder.Names(calls(bucket)) else "flush"
    throw new IllegalStateException(
      s"${StepOrder.Names(call)}(bucket $bucket, sequence $sequence) was called where " +
        s"$expected(bucket $bucket, sequence ${sequences(bucket)}) is due."
    )
  }
}

private[topology] object StepOrder {
  val Contribute = 0
  val Reduce = 1
  val Publish = 2
  val Collect = 3
  private val Names = Array("contribute", "reduce", "publish", "collect")
}
