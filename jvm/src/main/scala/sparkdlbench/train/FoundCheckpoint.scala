package sparkdlbench.train

import org.apache.hadoop.conf.Configuration
import sparkdlbench.common.{ConfigurationException, RunFailedException}
import sparkdlbench.config.{CheckpointKeys, Key}
import sparkdlbench.rank.Snapshot
import sparkdlbench.transport.{GroupContext, RankGroups}

import scala.annotation.tailrec

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

/**
 * A checkpoint that the driver has read, for the ranks of a job-per-step run to read as well.
 *
 * @param key
 *   that the folder was set by
 * @param ofThisRun
 *   written by an earlier submission of the same run
 */
private[train] final case class CheckpointPlace(folder: String, key: String, step: Long, ofThisRun: Boolean) {

  /**
   * @param who
   *   reads it, for messages
   */
  def read(hadoop: Configuration, who: String): Snapshot = new CheckpointStore(folder, hadoop).load(step) match {
    case Right(snapshot) => snapshot
    case Left(why) =>
      val text =
        s"The run is to go on from the checkpoint after step $step in '$folder', and $who cannot read it, though the driver could: $why. " +
          s"Set $key to a folder that all executors share, such as hdfs://…/checkpoints."
      // What an earlier submission could read may be there again at the next look.
      throw if (ofThisRun) new RunFailedException(text) else new ConfigurationException(text)
  }
}

private[train] object FoundCheckpoint {

  /** The same as `newest` for a run whose loop is in the driver, which alone looks for it. */
  def byDriver(setup: RunSetup): Option[(CheckpointPlace, Snapshot)] = {
    def found(key: Key[String], runId: Option[String]) = Checkpointing.store(setup, key).flatMap { store =>
      store.newest(Long.MaxValue, runId).map { snapshot =>
        CheckpointPlace(setup.settings(key), key.name, snapshot.step, runId.nonEmpty) -> snapshot
      }
    }
    val store = if (setup.submission == 0) None else Checkpointing.store(setup, CheckpointKeys.folder)
    val own = store.flatMap(_ => found(CheckpointKeys.folder, Some(setup.runId)))
    store.foreach { one =>
      own.fold(refuseUnreadable(one, setup.runId)) { case (place, _) => one.removeAfter(place.step, setup.runId) }
    }
    own.orElse(found(CheckpointKeys.resume, None)).orElse {
      val resume = setup.settings(CheckpointKeys.resume)
      if (resume.nonEmpty) CheckpointStore.require(resume, setup.hadoop.value): Unit // says why there is none
      None
    }
  }

  /**
   * The newest checkpoint that every rank can read: in a retry the run's own, otherwise that of the run that it resumes; a collective
   * call.
   *
   * @throws sparkdlbench.common.ConfigurationException
   *   the run is to resume, and a rank can read no checkpoint
   * @throws sparkdlbench.common.RunFailedException
   *   the run has checkpoints of its own, and some or all ranks can read none
   */
  def newest(setup: RunSetup, group: GroupContext, attempt: Int, place: String): Option[FoundCheckpoint] = {
    val store = if (attempt == 0) None else Checkpointing.store(setup, CheckpointKeys.folder)
    val mine = store.flatMap(own(group, _, place, setup.runId)).map(FoundCheckpoint(_, ofThisRun = true))
    if (mine.nonEmpty) mine
    else
      Checkpointing.store(setup, CheckpointKeys.resume).map { store =>
        agreed(group, store, place) match {
          case Right(snapshot) => FoundCheckpoint(snapshot, ofThisRun = false)
          case Left(blind) =>
            throw new ConfigurationException(
              s"The run is to go on from '${setup.settings(CheckpointKeys.resume)}', and ${blind.mkString(", ")} can read no complete checkpoint there, " +
                "though the driver could. Set resume to a folder that all executors share, such as hdfs://…/checkpoints."
            )
        }
      }
  }

  /**
   * The newest of the run's own checkpoints that all ranks can read; None where the run has made none. Those after it are removed, which not
   * all ranks could read: else they would count among those that are kept, and what the run writes from here on would go. A collective call.
   *
   * @throws sparkdlbench.common.RunFailedException
   *   some or all ranks can read none of those that there are. A retry may find them again; to begin anew would lose them without a word
   */
  private[train] def own(
      group: GroupContext,
      store: CheckpointStore,
      place: String,
      runId: String
  ): Option[Snapshot] = agreed(group, store, place, Some(runId)) match {
    case Right(snapshot) =>
      if (group.rank == 0) store.removeAfter(snapshot.step, runId)
      val _ = group.allGather("may write") // no rank writes before those are gone
      Some(snapshot)
    case Left(blind) if blind.size < group.size =>
      throw new RunFailedException(
        s"The run is to go on from its own checkpoints in '${store.folder}', and ${blind.mkString(", ")} can read none there, though the other ranks " +
          "can. Set checkpoint.dir to a folder that all executors share, such as hdfs://…/checkpoints, and see that each host has it mounted."
      )
    case Left(_) =>
      refuseUnreadable(store, runId)
      None
  }

  private def refuseUnreadable(store: CheckpointStore, runId: String): Unit =
    store.complete(Some(runId)).headOption.foreach { step =>
      val why = store.refusals
      throw new RunFailedException(
        s"The run is to go on from its own checkpoints in '${store.folder}', of which the newest is after step $step, and none of them could be read" +
          s"${if (why.isEmpty) "" else why.mkString(": ", "; ", "")}. See whether the file system of checkpoint.dir is whole, and go on with --resume ${store.folder}; or " +
          "start anew with an empty folder."
      )
    }

  /**
   * The newest checkpoint that all ranks can read; a collective call. Left: the ranks that can read none.
   *
   * @param place
   *   of this rank, for messages
   * @param runId
   *   of the run that wrote it; None: whichever
   */
  private[train] def agreed(
      group: GroupContext,
      store: CheckpointStore,
      place: String,
      runId: Option[String] = None
  ): Either[Seq[String], Snapshot] = {
    @tailrec
    def from(newest: Option[Snapshot]): Either[Seq[String], Snapshot] = {
      val told = group.allGather(s"${newest.fold(CanReadNone)(_.step)} $place").map { text =>
        val (step, where) = text.splitAt(text.indexOf(' '))
        (step.toLong, where.trim)
      }
      val blind = told.filter(_._1 == CanReadNone).map(_._2)
      val oldest = told.map(_._1).min
      if (blind.nonEmpty) Left(blind)
      else if (told.forall(_._1 == oldest)) newest.toRight(blind)
      // Some rank finds a newer one damaged, or not there yet.
      else from(if (newest.exists(_.step == oldest)) newest else store.newest(oldest, runId))
    }
    from(store.newest(Long.MaxValue, runId))
  }

  private val CanReadNone = -1L

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
    val from = found.fold(0L)(_.snapshot.step)
    GroupsReport(runId, attempt, kept.getOrElse(placed), placed, found.map(_.snapshot.groups), from)
  }
}
