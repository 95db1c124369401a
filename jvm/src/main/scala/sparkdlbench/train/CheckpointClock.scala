package sparkdlbench.train

import sparkdlbench.collective.Announcements

/**
 * Makes all ranks agree on a step at which `everyNanos` have passed since the last checkpoint, by rank 0's clock. Rank 0
 * looks at its clock at agreed steps only and announces the next one: half of the way that is left by the time a step took
 * lately, so an interval of n steps costs about log2 n announcements, and a checkpoint is late by few steps.
 *
 * @param from
 *   steps made when the clock starts
 * @param nanoTime
 *   rank 0's clock
 */
final class CheckpointClock(
    announcements: Announcements,
    everyNanos: Long,
    from: Long,
    nanoTime: () => Long = () => System.nanoTime()
) {
  private var takenAt = nanoTime()
  private var spokeAt = takenAt
  private var spokeAfter = from
  private var next = from + 1

  /** Whether a checkpoint is due after `stepsMade` steps. A collective call: every rank makes it once after every step. */
  def due(stepsMade: Long): Boolean = stepsMade >= next && {
    val told = announcements.announced(decide(stepsMade))
    next = stepsMade + math.abs(told)
    told < 0
  }

  /** A checkpoint was made, for whichever reason. */
  def restart(): Unit = takenAt = nanoTime()

  /** Steps until the next look at the clock; negative where a checkpoint is due. */
  private def decide(stepsMade: Long): Long = {
    val now = nanoTime()
    val stepNanos = math.max(1L, (now - spokeAt) / math.max(1L, stepsMade - spokeAfter))
    spokeAt = now
    spokeAfter = stepsMade
    val left = everyNanos - (now - takenAt)
    if (left <= 0) -ahead(everyNanos, stepNanos) else ahead(left, stepNanos)
  }

  private def ahead(nanos: Long, stepNanos: Long): Long = {
    val steps = (nanos + stepNanos - 1) / stepNanos
    if (steps <= CheckpointClock.Near) steps else steps / 2
  }
}

private object CheckpointClock { val Near = 8L }
