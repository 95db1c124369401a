package sparkdlbench.topology

import sparkdlbench.codec.Codec
import sparkdlbench.engine.FlatBuffer
import sparkdlbench.transport.Transport

/**
 * One message a bucket and step: slices [`fromSlice`, `untilSlice`) of the bucket travel from rank `from` to rank
 * `to`.
 */
final case class Hop(from: Int, to: Int, fromSlice: Int, untilSlice: Int)

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
 *   rounds of finished slices
 */
final case class Schedule(
    slices: Int,
    ownedSlice: IndexedSeq[Option[Int]],
    reduce: Seq[Seq[Hop]],
    gather: Seq[Seq[Hop]]
) {

  /** True where a rank sends what it received before, summed with its own: a lossy codec then rounds once a hop. */
  def sendsPartialSums: Boolean = reduce.size > 1
}

/** A topology that is a schedule of messages and nothing else; `ScheduledCollective` carries it out. */
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
      schedule(transport.size),
      Buckets(gradient.length, bucketLength),
      new WireCodec(gradientCodec),
      new WireCodec(parameterCodec),
      gradient,
      parameters
    )
  }

  def bytesPerStep(
      rank: Int,
      size: Int,
      length: Int,
      bucketLength: Int,
      gradientCodec: Codec,
      parameterCodec: Codec
  ): Option[Long] = {
    val plan = schedule(size)
    val buckets = Buckets(length, bucketLength)
    def sent(rounds: Seq[Seq[Hop]], codec: Codec): Seq[Option[Long]] = for {
      hop <- rounds.flatten if hop.from == rank
      bucket <- 0 until buckets.count
      slices = Slices(buckets.size(bucket), plan.slices)
      slice <- hop.fromSlice until hop.untilSlice if slices.size(slice) > 0
    } yield codec.fixedBytes(slices.size(slice))
    val messages = sent(plan.reduce, gradientCodec) ++ sent(plan.gather, parameterCodec)
    if (messages.exists(_.isEmpty)) None else Some(messages.flatten.sum)
  }
}
