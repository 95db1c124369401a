package sparkdlbench.metrics

/**
 * The phases of one rank's steps: their sums, and those of every `every`-th step. `every` doubles whenever `most` steps are
 * kept, so a long run takes no more memory than a short one, and ranks that make the same steps keep the same ones. Used by
 * one thread.
 *
 * @param most
 *   steps that are kept, an even number
 */
final class PhaseLog(most: Int) {
  require(most > 0 && most % 2 == 0, s"$most steps cannot be halved")
  private val width = Phase.names.size
  private val sums = new Array[Long](width)
  private val kept = new Array[Float](most * width)
  private var count = 0
  private var every = 1L
  private var made = 0L

  /** Steps so far. */
  def steps: Long = made

  /** Exposed nanoseconds by phase, summed over the steps so far. */
  def nanos: Array[Long] = sums.clone()

  /** Adds a step's exposed nanoseconds by phase; returns its length. */
  def add(phases: Array[Long]): Long = {
    if (made % every == 0) keep(phases)
    made += 1
    var sum = 0L
    var phase = 0
    while (phase < width) { sums(phase) += phases(phase); sum += phases(phase); phase += 1 }
    sum
  }

  def record: PhaseRecord = PhaseRecord(made, nanos, every, java.util.Arrays.copyOf(kept, count * width))

  private def keep(phases: Array[Long]): Unit = {
    if (count == most) thin()
    var phase = 0
    while (phase < width) { kept(count * width + phase) = (phases(phase) / 1e6).toFloat; phase += 1 }
    count += 1
  }

  /** Every second of the kept steps stays; the one that is next is a multiple of the new `every`, since `most` is even. */
  private def thin(): Unit = {
    count = most / 2
    (1 until count).foreach(step => System.arraycopy(kept, 2 * step * width, kept, step * width, width))
    every *= 2
  }
}

object PhaseLog {
  private val MostSteps = 4096
  private val FewestSteps = 64
  private val MostOfAll = 65536

  /** Steps that each of `ranks` ranks keeps: fewer where there are many ranks, since the driver holds and writes all of them. */
  def stepsKept(ranks: Int): Int = math.max(FewestSteps, math.min(MostSteps, MostOfAll / math.max(1, ranks) / 2 * 2))
}

/**
 * What a `PhaseLog` holds at the end.
 *
 * @param nanos
 *   exposed nanoseconds by phase, summed over all steps
 * @param every
 *   each such step is kept, from the first one on
 * @param kept
 *   exposed milliseconds by phase of the first kept step, then those of the next one, and so on
 */
final case class PhaseRecord(steps: Long, nanos: Array[Long], every: Long, kept: Array[Float]) {
  def keptSteps: Int = kept.length / Phase.names.size

  /** @param step number of the kept step */
  def millis(step: Int, phase: Int): Float = kept(step * Phase.names.size + phase)

  /** Mean milliseconds a step, by phase. */
  def phasesMillis: Seq[Double] = nanos.toSeq.map(_ / 1e6 / math.max(1L, steps))
}

/**
 * Who made the others wait in the kept steps. All ranks wait a little in every step, for what travels: so it is the rank that
 * waited least, for as long as the others waited longer than it.
 *
 * @param ranks
 *   those that compute, by rank
 */
final class Waits(ranks: IndexedSeq[PhaseRecord]) {
  private val steps = if (ranks.isEmpty) 0 else ranks.map(_.keptSteps).min

  /** By kept step: the rank that waited least. */
  val last: IndexedSeq[Int] = (0 until steps).map(step => ranks.indices.minBy(rank => waited(rank, step)))

  /** By kept step: milliseconds by which the others waited longer, all of them together. */
  val othersMillis: IndexedSeq[Double] = (0 until steps).map { step =>
    ranks.indices.map(rank => waited(rank, step)).sum - ranks.size * waited(last(step), step)
  }

  /** Seconds that the others waited for a rank, all of them together, in all steps: what the kept ones say of them. */
  def causedSeconds(rank: Int): Double =
    if (steps == 0) 0.0
    else last.indices.filter(step => last(step) == rank).map(othersMillis).sum / 1e3 * ranks.head.steps / steps

  private def waited(rank: Int, step: Int): Double = ranks(rank).millis(step, Phase.Wait).toDouble
}
