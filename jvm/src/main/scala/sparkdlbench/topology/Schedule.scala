package sparkdlbench.topology

import sparkdlbench.codec.Codec
import sparkdlbench.transport.{RankGroups, Transport}
import sparkdlbench.vector.{Buckets, FlatBuffer, Slices}

/**
 * One message a bucket and step: slices [`fromSlice`, `untilSlice`) of the bucket travel from rank `from` to rank
 * `to`.
 *
 * @param withinGroup
 *   between ranks of one group (`RankGroups`): as raw fp32, whatever the codec
 */
final case class Hop(from: Int, to: Int, fromSlice: Int, untilSlice: Int, withinGroup: Boolean = false)

/**
 * Payload bytes that a rank sends in one step.
 *
 * @param withinGroup
 *   to ranks of its own group
 * @param betweenGroups
 *   to other groups; None where the codec's sizes depend on the values
 */
final case class StepBytes(withinGroup: Long, betweenGroups: Option[Long]) {
  def total: Option[Long] = betweenGroups.map(_ + withinGroup)
}

/**
 * Which messages a step needs, for each bucket. Rounds order a rank's own work: it sends its hops of a round once it
 * has received its hops of all earlier rounds; there is no barrier between ranks.
 *
 * @param slices
 *   number of slices that each bucket is cut into
 * @param ownedSlice
 *   by rank: the slice whose sum the rank holds after the reduce rounds, or None; every slice has one owner
 * @param reduce
 *   rounds of partial sums. What a rank receives in one round are the same slices; it sums them with its own values in
 *   the order of ranks, its own in its place. A rank sends a slice at most once and never changes it afterwards.
 * @param gather
 *   rounds of finished slices; a rank is sent those alone to which it has contributed
 */
final case class Schedule(
    slices: Int,
    ownedSlice: IndexedSeq[Option[Int]],
    reduce: Seq[Seq[Hop]],
    gather: Seq[Seq[Hop]]
) {

  /** True where a rank sends what it received before, summed with its own: a lossy codec then rounds once a hop. */
  def sendsPartialSums: Boolean = reduce.count(_.exists(!_.withinGroup)) > 1

  /** Whether rank `rank` sends or receives anything in a codec. */
  def encodesAt(rank: Int): Boolean =
    (reduce ++ gather).flatten.exists(hop => !hop.withinGroup && (hop.from == rank || hop.to == rank))

  /** By slice: the ranks that send their values of it in the gradient's codec. */
  def encoders: IndexedSeq[Seq[Int]] = {
    val hops = reduce.flatten.filter(!_.withinGroup)
    (0 until slices).map(slice =>
      hops.filter(hop => hop.fromSlice <= slice && slice < hop.untilSlice).map(_.from).distinct.sorted
    )
  }
}

/**
 * A topology that is a schedule of messages and nothing else; `ScheduledCollective` carries it out, between groups of ranks
 * as `GroupedSchedule` says.
 */
trait Scheduled { self: Topology =>

  def schedule(size: Int): Schedule

  override def refuses(size: Int, gradientCodec: Codec, parameterCodec: Codec): Option[String] = {
    val sparse = gradientCodec.fixedBytes(1).isEmpty
    if (parameterCodec.fixedBytes(1).isEmpty)
      Some(
        s"Codec '${parameterCodec.name}' drops most values, so parameters cannot travel in it; " +
          "use a codec of fixed size (fp32, bf16) for parameters."
      )
    else if (sparse && schedule(size).sendsPartialSums)
      Some(
        s"Topology '$name' sends partial sums on from rank to rank, and codec '${gradientCodec.name}' would drop " +
          "values again at every hop; use topology sliced, where every gradient travels once, or a codec of fixed size (fp32, bf16)."
      )
    else None
  }

  def bind(
      transport: Transport,
      gradient: FlatBuffer,
      parameters: FlatBuffer,
      bucketLength: Int,
      gradientCodec: Codec,
      parameterCodec: Codec
  ): Collective = {
    Topology.check(this, transport.size, gradient, parameters, gradientCodec, parameterCodec)
    new ScheduledCollective(
      transport,
      GroupedSchedule.of(this, transport.groups),
      Buckets(gradient.length, bucketLength),
      new WireCodec(gradientCodec),
      new WireCodec(parameterCodec),
      gradient,
      parameters
    )
  }

  def bytesPerStep(
      rank: Int,
      groups: RankGroups,
      length: Int,
      bucketLength: Int,
      gradientCodec: Codec,
      parameterCodec: Codec
  ): StepBytes = {
    val plan = GroupedSchedule.of(this, groups)
    val buckets = Buckets(length, bucketLength)
    def sent(rounds: Seq[Seq[Hop]], withinGroup: Boolean, bytes: Int => Option[Long]): Seq[Option[Long]] = for {
      hop <- rounds.flatten if hop.from == rank && hop.withinGroup == withinGroup
      bucket <- 0 until buckets.count
      slices = Slices(buckets.size(bucket), plan.slices)
      slice <- hop.fromSlice until hop.untilSlice if slices.size(slice) > 0
    } yield bytes(slices.size(slice))
    val within = sent(plan.reduce ++ plan.gather, withinGroup = true, count => Some(4L * count))
    val between = sent(plan.reduce, withinGroup = false, gradientCodec.fixedBytes) ++
      sent(plan.gather, withinGroup = false, parameterCodec.fixedBytes)
    StepBytes(within.flatten.sum, if (between.exists(_.isEmpty)) None else Some(between.flatten.sum))
  }

  /** Of rank 0, which leads a group, is nobody's extra, and gets the longer slices. */
  def memory(
      groups: RankGroups,
      length: Int,
      bucketLength: Int,
      gradientCodec: Codec,
      parameterCodec: Codec
  ): CollectiveMemory = CollectiveMemory.of(
    GroupedSchedule.of(this, groups),
    0,
    Buckets(length, bucketLength),
    new WireCodec(gradientCodec),
    new WireCodec(parameterCodec)
  )
}
