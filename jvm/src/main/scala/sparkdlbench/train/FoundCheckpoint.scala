package sparkdlbench.train

import sparkdlbench.transport.{GroupContext, RankGroups}

/**
 * The checkpoint that an attempt goes on from.
 *
 * @param ofThisRun
 *   written by an earlier attempt of the same run
 */
private[train] final case class FoundCheckpoint(snapshot: Snapshot, ofThisRun: Boolean) {

  /** The sum of the losses of this rank's rows in the epoch so far. */
  def lossesSoFar(group: GroupContext): Double =
    if (snapshot.parts.size == group.size) snapshot.parts(group.rank).epochLoss
    else if (group.rank == 0) snapshot.parts.map(_.epochLoss).sum
    else 0.0
}

private[train] object FoundCheckpoint {

  /** The newest checkpoint that every rank can read; a collective call. */
  def newest(setup: RunSetup, group: GroupContext, attempt: Int): Option[FoundCheckpoint] = {
    val own = if (attempt == 0) None else Checkpointing.store(setup, Checkpointing.folder)
    val resumed = Checkpointing.store(setup, Checkpointing.resume)
    if (own.isEmpty && resumed.isEmpty) None
    else {
      val readable = own.flatMap(_.newest).map(FoundCheckpoint(_, ofThisRun = true)).toSeq ++
        resumed.flatMap(_.newest).map(FoundCheckpoint(_, ofThisRun = false))
      val steps = group
        .allGather(readable.map(_.snapshot.step).mkString(" "))
        .map(_.split(' ').filter(_.nonEmpty).map(_.toLong).toSet)
      val common = steps.reduce(_ intersect _)
      if (common.isEmpty) None else readable.find(_.snapshot.step == common.max)
    }
  }

  /**
   * The ranks that sum in memory first. A retry keeps the groups of the attempt before, wherever its ranks are now, so that
   * it ends with the same bits; any other start takes the ranks that share a process.
   *
   * @param placed
   *   the ranks that share a process now
   */
  def groups(
      runId: String,
      size: Int,
      attempt: Int,
      placed: RankGroups,
      found: Option[FoundCheckpoint]
  ): GroupsReport = {
    val kept = found.filter(_.ofThisRun).map(_.snapshot.groups).filter(_.size == size)
    GroupsReport(runId, attempt, kept.getOrElse(placed), placed, found.map(_.snapshot.groups))
  }
}
