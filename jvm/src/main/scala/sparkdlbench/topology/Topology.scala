package sparkdlbench.topology

import sparkdlbench.codec.Codec
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.{Axis, Key, RunKeys, Settings, Variant, Variants}
import sparkdlbench.transport.{RankGroups, Transport}
import sparkdlbench.vector.FlatBuffer

/**
 * Along which edges values travel. Written once, over `Transport`; names no transport. The order of summation depends
 * on the number of ranks, the topology and the groups of ranks that sum in memory first (`Transport.groups`) alone,
 * never on arrival, so the same inputs give the same bits.
 */
trait Topology extends Variant {

  /** False where values go through the driver by Spark jobs: see `JobTopology`. */
  def amongRanks: Boolean = true

  /** This topology with the parameters that the settings give it. */
  def configured(settings: Settings): Topology = this

  /** None when `size` ranks can use it with these codecs, otherwise the reason why not and what to do. */
  def refuses(size: Int, gradientCodec: Codec, parameterCodec: Codec): Option[String] = None

  /**
   * Prepares collectives over the ranks of `transport`; a collective call (opens the transport's lanes).
   *
   * @param gradient
   *   the vector that `reduce` sums
   * @param parameters
   *   the vector that `collect` completes; same length; may be the same buffer as `gradient` (a plain all-reduce)
   * @param bucketLength
   *   values a bucket, at least 1; see `Buckets`
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

  /** Payload bytes that rank `rank` sends in one step (`contribute` to `flush`, all buckets) for vectors of `length` values. */
  def bytesPerStep(
      rank: Int,
      groups: RankGroups,
      length: Int,
      bucketLength: Int,
      gradientCodec: Codec,
      parameterCodec: Codec
  ): StepBytes

  /** Memory that a rank needs for `bind`, as much as the rank that needs most. Without any memory being taken. */
  def memory(
      groups: RankGroups,
      length: Int,
      bucketLength: Int,
      gradientCodec: Codec,
      parameterCodec: Codec
  ): CollectiveMemory
}

object Topology {

  /** The one that the settings name. */
  def of(settings: Settings): Topology =
    Variants.find[Topology]("topology", settings(RunKeys.topology)).configured(settings)

  /** What every `bind` checks first. */
  private[topology] def check(
      topology: Topology,
      size: Int,
      gradient: FlatBuffer,
      parameters: FlatBuffer,
      gradientCodec: Codec,
      parameterCodec: Codec
  ): Unit = {
    require(
      gradient.length == parameters.length,
      s"gradient has ${gradient.length} values, parameters ${parameters.length}"
    )
    topology.refuses(size, gradientCodec, parameterCodec).foreach(reason => throw new ConfigurationException(reason))
  }
}

/**
 * The collectives of one rank over one pair of vectors; used by one thread at a time. In each step (`sequence` = 0, 1,
 * 2, …) every rank calls, for every bucket, `contribute`, `reduce`, (changes its owned values of `parameters`,)
 * `publish`, `collect`, also where it owns nothing; then `flush`. Calls for different buckets may be interleaved, but
 * all ranks make the calls that wait (`reduce`, `collect`) in the same order. Best is: contribute to a few buckets
 * ahead, reduce and publish them one by one, collect them all, as `step` does. Another order within a bucket, or
 * another sequence, is a bug and fails with an IllegalStateException.
 *
 * Other ranks' parameters may be written to `parameters` as soon as this rank has contributed to a bucket: from then
 * until `collect` it neither reads nor writes the bucket's values there, except the owned range between `reduce` and
 * `publish`.
 */
trait Collective {

  /**
   * The same collectives over another vector, which is gradient and parameters in one, as these are. They share lanes and sequence, so of
   * one step all calls go to one of them: that whose `use` was called last. Concerns this rank alone. None where they cannot.
   */
  def over(values: FlatBuffer): Option[Collective] = None

  /** Between two steps: from now on messages arrive where these collectives want them. False where the transport cannot. */
  def use(): Boolean = false

  /** Number of buckets; 0 for vectors of no values. */
  def buckets: Int

  /**
   * Range [from, until) of bucket `bucket` in the vectors. Bucket 0 is the end of the vector: backward finishes it
   * first.
   */
  def range(bucket: Int): (Int, Int)

  /**
   * Range [from, until) of bucket `bucket` whose sum this rank holds after `reduce`; the ranks' ranges are disjoint and
   * cover the bucket. May be empty. The same in every step.
   */
  def owned(bucket: Int): (Int, Int)

  /**
   * This rank's values of the bucket are final, and its backward pass has done with the bucket's range of `parameters`:
   * starts sending what can be sent. Does not wait. `gradient` is not touched again by the caller until `reduce` (to
   * read the owned range) and `flush` (to change it).
   */
  def contribute(bucket: Int, sequence: Long): Unit

  /**
   * Waits for the other ranks' values; afterwards the owned range of `gradient` holds the sum over ranks, summed in
   * fp32. Other ranges hold anything.
   */
  def reduce(bucket: Int, sequence: Long): Unit

  /**
   * This rank's owned range of `parameters` is final: starts sending it. Does not wait. Where `roundsParameters`, the
   * owned range itself is rounded as the others see it: an optimiser that is not to lose updates below that rounding
   * keeps its own unrounded values, as part of its state.
   */
  def publish(bucket: Int, sequence: Long): Unit

  /**
   * Waits for the other ranks' owned ranges; afterwards `parameters` holds the whole bucket, the same bits on every
   * rank. A rank that serves alone (`ps.place = own`) waits for none, and holds there what it owns.
   */
  def collect(bucket: Int, sequence: Long): Unit

  /**
   * What this rank's gradient messages have left out so far (`Codec.keepsResidual`), in the layout of `gradient`; part
   * of the checkpoint. Read and written between `flush` and `contribute` alone.
   */
  def residual: Option[FlatBuffer]

  /** The ranges of the gradient that this rank encodes, so where its residual can ever leave again. */
  def encoded: Seq[EncodedRange]

  /** True where parameters travel between ranks in a lossy codec, so that all ranks compute with rounded ones. */
  def roundsParameters: Boolean

  /** Waits until `gradient` and `parameters` may be changed; ends the step of every bucket that was collected. */
  def flush(): Unit

  /**
   * A whole step, for a caller whose values are all final: contributes to every bucket, reduces, has `reduced` called for it, publishes,
   * collects, and flushes. Contributions keep no more than `Collective.AheadBytes` ahead of sums, or two buckets where these are longer:
   * so a sum does not leave behind the whole vector, and what was summed is still in the processor's cache when it is sent.
   *
   * @param reduced
   *   gets each bucket whose sum is there, and may change its owned range
   */
  final def step(sequence: Long)(reduced: Int => Unit): Unit = {
    var sent = 0
    var bucket = 0
    while (bucket < buckets) {
      val (from, until) = range(bucket)
      val most = bucket + math.max(2, Collective.AheadBytes / (4 * math.max(1, until - from)))
      while (sent < buckets && sent < most) { contribute(sent, sequence); sent += 1 }
      reduce(bucket, sequence)
      reduced(bucket)
      publish(bucket, sequence)
      bucket += 1
    }
    bucket = 0
    while (bucket < buckets) { collect(bucket, sequence); bucket += 1 }
    flush()
  }
}

object Collective {

  /** So much of a vector is on its way ahead of its sums. */
  private[topology] val AheadBytes = 4 << 20
}

/** Values [`from`, `until`) of the gradient, and in ascending order all ranks that send their values of it encoded. */
final case class EncodedRange(from: Int, until: Int, ranks: Seq[Int])

final class TopologyAxis extends Axis {
  def place = 2
  def name = "topology"
  def key: Key[String] = RunKeys.topology
  def variants: Seq[Variant] = Variants.all[Topology]
}
