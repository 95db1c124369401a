package sparkdlbench.topology

import sparkdlbench.vector.{Buckets, Slices}

/**
 * Memory that one rank's collectives need besides the two vectors.
 *
 * @param inboxes
 *   lanes that end at the rank
 * @param images
 *   bytes for encoded values, and for values on their way between two sums
 * @param residual
 *   bytes for what the codec left out
 * @param owned
 *   values that the rank owns
 */
final case class CollectiveMemory(inboxes: Seq[Inbox], images: Long, residual: Long, owned: Long)

/**
 * A number of lanes that are alike.
 *
 * @param capacity
 *   bytes of the largest message
 * @param destination
 *   messages go straight to where they are wanted
 * @param withinGroup
 *   from a rank of the same group
 */
final case class Inbox(count: Int, capacity: Long, destination: Boolean, withinGroup: Boolean)

private[topology] object CollectiveMemory {
  def of(
      schedule: Schedule,
      rank: Int,
      layout: Buckets,
      gradientCodec: WireCodec,
      parameterCodec: WireCodec
  ): CollectiveMemory = {
    val raw = ScheduledCollective.raw
    val alike = (0 until layout.count).groupBy(layout.size).toSeq.map { case (size, buckets) =>
      Slices(size, schedule.slices) -> buckets.size
    }
    def inboxes(rounds: Seq[Seq[Hop]], codec: WireCodec, destination: Boolean) = for {
      hop <- rounds.flatten if hop.to == rank
      (slices, buckets) <- alike if slices.from(hop.untilSlice) > slices.from(hop.fromSlice)
      used = if (hop.withinGroup) raw else codec
      capacity = (hop.fromSlice until hop.untilSlice).map(slice => used.bytes(slices.size(slice))).sum
    } yield Inbox(buckets, capacity, destination, hop.withinGroup)
    def image(codec: WireCodec): Long =
      if (codec.raw || !schedule.encodesAt(rank)) 0
      else
        alike.map { case (slices, buckets) =>
          buckets * (0 until slices.parts).map(s => codec.bytes(slices.size(s))).sum
        }.sum
    val scratch =
      if (gradientCodec.raw || layout.count == 0) 0L else 4L * Slices(layout.size(0), schedule.slices).maxSize
    val keepsResidual = gradientCodec.codec.keepsResidual && schedule.encodesAt(rank)
    CollectiveMemory(
      inboxes(schedule.reduce, gradientCodec, destination = false) ++
        inboxes(schedule.gather, parameterCodec, destination = true),
      image(gradientCodec) + image(parameterCodec) + scratch,
      if (keepsResidual) 4L * layout.length else 0,
      schedule
        .ownedSlice(rank)
        .fold(0L)(slice => alike.map { case (slices, buckets) => slices.size(slice).toLong * buckets }.sum)
    )
  }
}
