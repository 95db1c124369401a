package sparkdlbench.train

import sparkdlbench.collective.Announcements

/**
 * Makes all ranks agree on a step at which `everyNanos` have passed since the last checkpoint, by rank 0's clock. Rank 0
 * looks at its clock at agreed steps only and announces the next one: half of the way that is left by the time a step took
 * lately, so an interval of n steps costs about log2 n announcements, and a checkpoint is late by few steps.
 *
 * By the same announcements all ranks learn at a checkpoint that the attempt ends there: rank 0 then looks at least every `lookNanos`.
 *
 * @param everyNanos
 *   between checkpoints by time; 0: none are made by time

 * @param from
 *   steps made when the clock starts
 * @param nanoTime
 *   rank 0's clock
 * @param wantsEnd
 *   whether the attempt shall end at a checkpoint; asked at rank 0 alone
 * @param lookNanos
 *   the longest time that rank 0 does not look
 */
final class CheckpointClock(
    announcements: Announcements,
    everyNanos: Long,
    from: Long,
    nanoTime: () => Long = () => System.nanoTime(),
    wantsEnd: () => Boolean = () => false,
    lookNanos: Long = Long.MaxValue
) {
  private var takenAt = nanoTime()
  private var spokeAt = takenAt
  private var spokeAfter = from
  private var next = from + 1
  private var ended = false

  /** Whether the attempt ends at the checkpoint that is due now; the same at every rank, after `due`. */
  def ends: Boolean = ended

  /** Whether a checkpoint is due after `stepsMade` steps. A collective call: every rank makes it once after every step. */
  def due(stepsMade: Long): Boolean = stepsMade >= next && {
    val told = announcements.announced(decide(stepsMade))
    ended = told == CheckpointClock.End
    next = stepsMade + math.max(1L, math.abs(told))
    told < 0 || ended
  }

  /** A checkpoint was made, for whichever reason. */
  def restart(): Unit = takenAt = nanoTime()

  /** Steps until the next look at the clock; negative where a checkpoint is due, and `End` where the attempt ends at it. */
  private def decide(stepsMade: Long): Long = {
    val now = nanoTime()
    val stepNanos = math.max(1L, (now - spokeAt) / math.max(1L, stepsMade - spokeAfter))
    spokeAt = now
    spokeAfter = stepsMade
    val left = if (everyNanos == 0) Long.MaxValue else everyNanos - (now - takenAt)
    if (wantsEnd()) CheckpointClock.End
    else if (left <= 0) -ahead(math.min(everyNanos, lookNanos), stepNanos)
    else ahead(math.min(left, lookNanos), stepNanos)
  }

  private def ahead(nanos: Long, stepNanos: Long): Long = {
    val steps = (nanos - 1) / stepNanos + 1
    if (steps <= CheckpointClock.Near) steps else steps / 2
  }
}

private object CheckpointClock {
  val Near = 8L

  /** What rank 0 announces in place of a number of steps. */
  val End = 0L
}
