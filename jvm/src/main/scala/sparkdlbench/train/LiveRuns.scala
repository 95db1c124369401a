package sparkdlbench.train

import sparkdlbench.metrics.{Phase, ResourceLog, ResourceUse, StepPhases}
import sparkdlbench.rank.Placement

import scala.collection.immutable.ListMap
import scala.collection.mutable

/**
 * What one rank has done since its attempt began.
 *
 * @param phaseNanos
 *   exposed nanoseconds by phase, summed over the steps
 * @param bytes
 *   payload bytes sent, by channel
 */
final case class RankStatus(
    rank: Int,
    host: String,
    executorId: String,
    steps: Long,
    phaseNanos: Array[Long],
    bytes: Map[String, Long]
) {

  /** Mean milliseconds a step, by phase. */
  def phasesMillis: Seq[Double] = phaseNanos.toSeq.map(_ / 1e6 / math.max(1L, steps))

  /** Milliseconds per step in which it waited neither for other ranks nor for Spark. */
  def ownMillis: Double = phasesMillis.sum - phasesMillis(Phase.Wait) - phasesMillis(Phase.Scheduler)
}

/** A run of an application as others may look at it while it goes on: Spark's own pages do. */
final class LiveRun private[train] (val application: String, val setup: RunSetup, val progress: RunProgress) {
  private val ranks = mutable.TreeMap.empty[Int, RankStatus]
  private var phases = Array.fill(Phase.names.size)(0L)
  private var stepsDone = 0L
  private var allBytes = Map.empty[String, Long]
  private var otherWorkers: Option[Int] = None
  private var changes = Vector.empty[String]

  def runId: String = setup.runId
  def variant: ListMap[String, String] = Recorder.variant(setup)

  /** Now: the run may have begun with another number. */
  def workers: Int = synchronized(otherWorkers.getOrElse(setup.workers))

  /** How the number of workers has changed, a line each time. */
  def workerChanges: Seq[String] = synchronized(changes)

  /** A rank of a one-stage run told where it is. */
  def told(status: RankStatus): Unit = synchronized { ranks(status.rank) = status }

  /**
   * The training was submitted again; what the ranks told before is over.
   *
   * @param change
   *   in words, where there are more or fewer workers now
   */
  def resubmitted(workers: Int, change: Option[String] = None): Unit = synchronized {
    otherWorkers = Some(workers)
    changes ++= change
    ranks.clear()
  }

  /** The ranks of a run of a job per step have their places. */
  def placed(places: Seq[Placement]): Unit = synchronized {
    val none = new Array[Long](Phase.names.size)
    places.foreach(at => ranks(at.rank) = RankStatus(at.rank, at.host, at.executorId, 0, none, Map.empty))
  }

  /** The driver of a run of a job per step counted a step. */
  def stepDone(step: StepPhases): Unit = synchronized {
    phases = LiveRun.sum(phases, step.critical)
    stepsDone += 1
    step.ranks.zipWithIndex.foreach { case (nanos, rank) =>
      ranks.get(rank).foreach { before =>
        ranks(rank) = before.copy(steps = stepsDone, phaseNanos = LiveRun.sum(before.phaseNanos, nanos))
      }
    }
  }

  /** All bytes so far: of a run of a job per step after each evaluation, of any at the end. */
  def sent(bytes: Map[String, Long]): Unit = synchronized { allBytes = bytes }

  /** Each rank, where the ranks tell; those of one attempt may be at different steps. */
  def rankStatuses: Seq[RankStatus] = synchronized(ranks.values.toSeq)

  /** Mean milliseconds a step by phase: of the ranks' mean, or as the driver saw them. */
  def phasesMillis: Seq[Double] = synchronized {
    if (stepsDone > 0 || ranks.isEmpty) phases.toSeq.map(_ / 1e6 / math.max(1L, stepsDone))
    else ranks.values.map(_.phasesMillis).reduce(_.zip(_).map { case (a, b) => a + b }).map(_ / ranks.size)
  }

  def bytes: Seq[(String, Long)] = synchronized {
    val known = if (allBytes.nonEmpty) Seq(allBytes) else ranks.values.map(_.bytes).toSeq
    sparkdlbench.metrics.ByteCounter.sum(known).toSeq.sortBy(_._1)
  }

  /** The rank that the others wait for: the one that works longest itself, where it is more than 2 % above the ranks' mean. */
  def straggler: Option[RankStatus] = {
    val all = rankStatuses.filter(_.steps > 0)
    if (all.size < 2) None
    else Some(all.maxBy(_.ownMillis)).filter(_.ownMillis > 1.02 * all.map(_.ownMillis).sum / all.size)
  }

  def use: Option[ResourceUse] = ResourceLog.latest(runId)
}

private object LiveRun {
  private def sum(one: Array[Long], other: Array[Long]): Array[Long] = one.zip(other).map { case (a, b) => a + b }
}

/** The runs of this driver, the newest first. */
object LiveRuns {
  private val Kept = 20
  private var runs = List.empty[LiveRun]

  def open(application: String, setup: RunSetup, progress: RunProgress): LiveRun = synchronized {
    val run = new LiveRun(application, setup, progress)
    runs = (run :: runs).take(Kept)
    run
  }

  def of(application: String): Seq[LiveRun] = synchronized(runs.filter(_.application == application))
}
