package sparkdlbench.topology

import sparkdlbench.codec.Codec
import sparkdlbench.config.Variant
import sparkdlbench.engine.FlatBuffer
import sparkdlbench.transport.Transport

/**
 * Along which edges values travel. Written once, over `Transport`; names no transport. The order of summation depends on
 * the number of ranks and the topology alone, never on arrival, so the same inputs give the same bits.
 */
trait Topology extends Variant {

  /** None when `size` ranks can use it, otherwise the reason why not and what to do. */
  def refuses(size: Int): Option[String] = None

  /**
   * Prepares collectives over the ranks of `transport`; a collective call (opens the transport's lanes).
   *
   * @param gradient
   *   the vector that `reduce` sums
   * @param parameters
   *   the vector that `collect` completes; same length; may be the same buffer as `gradient` (a plain all-reduce)
   * @param bucketLength
   *   values a bucket, at least 1; the vector is cut into consecutive buckets of this length, the last may be shorter
   * @param gradientCodec
   *   in which bytes parts of the gradient travel
   * @param parameterCodec
   *   in which bytes parameters travel
   */
  def bind(
      transport: Transport,
      gradient: FlatBuffer,
      parameters: FlatBuffer,
      bucketLength: Int,
      gradientCodec: Codec,
      parameterCodec: Codec
  ): Collective

  /** Payload bytes that rank `rank` of `size` sends in one step (reduce and collect) for vectors of `length` values; None where data decide. */
  def bytesPerStep(rank: Int, size: Int, length: Int, bucketLength: Int, gradientCodec: Codec, parameterCodec: Codec): Option[Long]
}

/**
 * The collectives of one rank over one pair of vectors. In each step (`sequence` = 0, 1, 2, …) every rank calls, for every
 * bucket and in the same order on all ranks: `contribute`, `reduce`, (changes its owned values of `parameters`,) `publish`,
 * `collect`. Then `flush` before it changes `gradient` again.
 */
trait Collective {
  def buckets: Int

  /** Range [from, until) of bucket `bucket` in the vectors. Bucket 0 is the end of the vector: backward finishes it first. */
  def range(bucket: Int): (Int, Int)

  /** Range [from, until) of bucket `bucket` whose sum this rank holds after `reduce`; ranks' ranges are disjoint and cover the bucket. May be empty. */
  def owned(bucket: Int): (Int, Int)

  /** This rank's values of the bucket are final: starts sending what can be sent. Does not wait. */
  def contribute(bucket: Int, sequence: Long): Unit

  /** Waits for the other ranks' values; afterwards the owned range of `gradient` holds the sum over ranks, in fp32. Other ranges hold anything. */
  def reduce(bucket: Int, sequence: Long): Unit

  /** This rank's owned range of `parameters` is final: starts sending it. Does not wait. With a lossy codec the owned range itself is rounded as the others will see it. */
  def publish(bucket: Int, sequence: Long): Unit

  /** Waits for the other ranks' owned ranges; afterwards `parameters` holds the whole bucket, the same bits on every rank. */
  def collect(bucket: Int, sequence: Long): Unit

  /** Waits until `gradient` and `parameters` may be changed. */
  def flush(): Unit
}
