package sparkdlbench.train

import sparkdlbench.metrics.{Phase, ResourceLog, ResourceUse}
import sparkdlbench.results.Recorder

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

  /** Milliseconds a step in which it did not wait for other ranks. */
  def ownMillis: Double = phasesMillis.sum - phasesMillis(Phase.Wait)
}

/** A run of an application as others may look at it while it goes on: Spark's own pages do. */
final class LiveRun private[train] (val application: String, val setup: RunSetup, val progress: Progress) {
  private val ranks = mutable.TreeMap.empty[Int, RankStatus]
  private var phases = Array.fill(Phase.names.size)(0L)
  private var steps = 0L
  private var finalBytes = Map.empty[String, Long]

  def runId: String = setup.runId
  def variant: ListMap[String, String] = Recorder.variant(setup)

  /** A rank of a one-stage run told where it is. */
  def told(status: RankStatus): Unit = synchronized { ranks(status.rank) = status }

  /** The driver of a run of a job a step counted a step. */
  def stepDone(phaseNanos: Array[Long]): Unit = synchronized {
    phases = phases.zip(phaseNanos).map { case (sum, more) => sum + more }
    steps += 1
  }

  /** All bytes, known at the end. */
  def sent(bytes: Map[String, Long]): Unit = synchronized { finalBytes = bytes }

  /** Each rank, where the ranks tell; those of one attempt may be at different steps. */
  def rankStatuses: Seq[RankStatus] = synchronized(ranks.values.toSeq)

  /** Mean milliseconds a step by phase: of the ranks' mean, or as the driver saw them. */
  def phasesMillis: Seq[Double] = synchronized {
    if (ranks.isEmpty) phases.toSeq.map(_ / 1e6 / math.max(1L, steps))
    else ranks.values.map(_.phasesMillis).reduce(_.zip(_).map { case (a, b) => a + b }).map(_ / ranks.size)
  }

  def bytes: Seq[(String, Long)] = synchronized {
    val known = if (finalBytes.nonEmpty) Seq(finalBytes) else ranks.values.map(_.bytes).toSeq
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

/** The runs of this driver, the newest first. */
object LiveRuns {
  private val Kept = 20
  private var runs = List.empty[LiveRun]

  def open(application: String, setup: RunSetup, progress: Progress): LiveRun = synchronized {
    val run = new LiveRun(application, setup, progress)
    runs = (run :: runs).take(Kept)
    run
  }

  def of(application: String): Seq[LiveRun] = synchronized(runs.filter(_.application == application))
}
