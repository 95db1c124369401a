package sparkdlbench.topology

import sparkdlbench.transport.RankGroups

/**
 * A topology's schedule between groups of ranks, which sum in memory first (hierarchical all-reduce).
 *
 * Each bucket is cut into P planes, P being the ranks of the smallest group. Rank number p of every group leads plane p: it
 * sums the plane over its group (in memory), takes part for its group in the topology's schedule on that plane, and hands
 * the finished plane back to its group (in memory). So the groups exchange what one rank a group would, and the work of a
 * group is shared by P of its ranks; a group's ranks from number P on lead nothing and own nothing.
 *
 * Order of summation: within each group by rank, then between the ranks that lead as the topology says. It depends on the topology and
 * the groups alone. Where every rank is alone, this is the topology's own schedule. As in Graham & Shipman, "MPI support
 * for multi-core architectures: optimized shared memory collectives", EuroPVM/MPI 2008, and with the planes of Jeaugey,
 * "Massively scale your deep learning training with NCCL 2.4", 2019 (one ring a local GPU).
 */
private[topology] object GroupedSchedule {

  def of(topology: Scheduled, groups: RankGroups): Schedule =
    if (groups.alone) topology.schedule(groups.size) else grouped(topology.schedule(groups.count), groups)

  private def grouped(between: Schedule, groups: RankGroups): Schedule = {
    val planes = groups.members.map(_.size).min
    def leader(group: Int, plane: Int): Int = groups.members(group)(plane)
    def onEveryPlane(round: Seq[Hop]): Seq[Hop] = for (plane <- 0 until planes; hop <- round) yield {
      val first = plane * between.slices
      Hop(leader(hop.from, plane), leader(hop.to, plane), first + hop.fromSlice, first + hop.untilSlice)
    }
    val toLeaders = for {
      group <- 0 until groups.count
      plane <- 0 until planes
      member <- groups.members(group) if member != leader(group, plane)
    } yield Hop(
      member,
      leader(group, plane),
      plane * between.slices,
      (plane + 1) * between.slices,
      withinGroup = true
    )
    val ownedSlice = Array.fill[Option[Int]](groups.size)(None)
    for (plane <- 0 until planes; group <- 0 until groups.count)
      ownedSlice(leader(group, plane)) = between.ownedSlice(group).map(plane * between.slices + _)
    Schedule(
      slices = planes * between.slices,
      ownedSlice = ownedSlice.toIndexedSeq,
      reduce = toLeaders +: between.reduce.map(onEveryPlane),
      gather = between.gather.map(onEveryPlane) :+ toLeaders.map(hop => hop.copy(from = hop.to, to = hop.from))
    )
  }
}
