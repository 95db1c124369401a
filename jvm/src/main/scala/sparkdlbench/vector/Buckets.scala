package sparkdlbench.vector

/**
 * How a vector is cut into consecutive buckets, counted from its end: backward finishes the last layer first, so bucket
 * 0 can travel first. All buckets have `bucketLength` values but the last one, at the start of the vector, which may be
 * shorter.
 *
 * @param length
 *   values in the vector; 0 gives no bucket
 * @param bucketLength
 *   values a bucket, at least 1
 */
final case class Buckets(length: Int, bucketLength: Int) {
  require(length >= 0 && bucketLength >= 1, s"length $length, bucket length $bucketLength")
  val count: Int = ((length.toLong + bucketLength - 1) / bucketLength).toInt
  def from(bucket: Int): Int = math.max(0L, length - (bucket + 1L) * bucketLength).toInt
  def until(bucket: Int): Int = (length - bucket.toLong * bucketLength).toInt
  def size(bucket: Int): Int = until(bucket) - from(bucket)
}
