package sparkdlbench.metrics

/**
 * What a rank does in a step (docs/reference/metrics.md). Exposed time: each nanosecond of the rank's thread counts for one phase, so
 * the phases' sum is the step's time.
 */
object Phase {
  val names: IndexedSeq[String] =
    IndexedSeq("data", "compute", "encode", "send", "wait", "reduce", "decode", "update", "scheduler")
  val Data = 0
  val Compute = 1
  val Encode = 2
  val Send = 3
  val Wait = 4
  val Reduce = 5
  val Decode = 6
  val Update = 7
  val Scheduler = 8
}

/**
 * Exposed nanoseconds by phase of a step of the job-per-step shape.
 *
 * @param critical
 *   as the driver saw the step: what the slowest task of each stage measured
 * @param ranks
 *   by rank; each adds up to what `critical` does
 */
final case class StepPhases(critical: Array[Long], ranks: IndexedSeq[Array[Long]])

/** Nanoseconds by phase, of one rank; used by that rank's thread alone. */
final class PhaseTimer {
  private val nanos = new Array[Long](Phase.names.size)
  private var since = System.nanoTime()
  private var phase = Phase.Scheduler

  def current: Int = phase

  /** From now on time belongs to `next`; returns the phase it belonged to so far. */
  def switch(next: Int): Int = {
    val now = System.nanoTime()
    nanos(phase) += now - since
    since = now
    val before = phase
    phase = next
    before
  }

  /** Forgets the time since the last switch, and all before it. */
  def restart(next: Int): Unit = {
    java.util.Arrays.fill(nanos, 0L)
    since = System.nanoTime()
    phase = next
  }

  /** The nanoseconds so far; starts again from zero, in the same phase. */
  def take(): Array[Long] = {
    switch(phase)
    val taken = nanos.clone()
    java.util.Arrays.fill(nanos, 0L)
    taken
  }
}
