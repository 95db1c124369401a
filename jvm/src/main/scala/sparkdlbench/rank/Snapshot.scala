package sparkdlbench.rank

import sparkdlbench.common.ConfigurationException
import sparkdlbench.transport.RankGroups

import scala.collection.mutable

/** Values `from` until `from + values.length` of the vector called `name` (`weights`, `momentum`, `residual`, …). */
final case class StateRange(name: String, from: Int, values: Array[Float])

/**
 * What the rows of a step depend on besides its number: a run that goes on from a checkpoint trains on the rows that come next.
 *
 * @param batch
 *   rows of all workers together
 * @param rows
 *   of the training set
 * @param set
 *   which rows they are, where the source alone does not say (`DataFacts.rowsIdentity`)
 */
final case class DataPosition(batch: Int, seed: Long, rows: Int, set: String = "")

/**
 * Who wrote a part of a checkpoint. Parts of different runs, or of different attempts of one run, never make a checkpoint together.
 *
 * @param attempt
 *   counted over the run's submissions
 */
final case class CheckpointAuthor(runId: String, attempt: Int)

/**
 * One rank's part of a checkpoint: what it answers for, taken after `step` steps were made.
 *
 * @param group
 *   lowest rank of the ranks that summed in memory with it (`RankGroups`)
 * @param epochLoss
 *   sum of the losses of the rank's rows so far in the epoch that `step` is in
 */
final case class RankSnapshot(
    step: Long,
    rank: Int,
    size: Int,
    group: Int,
    data: DataPosition,
    epochLoss: Double,
    ranges: Seq[StateRange],
    author: CheckpointAuthor = CheckpointAuthor("run", 0)
)

/** A whole checkpoint, the parts of all ranks of the run that wrote it. */
final case class Snapshot(step: Long, parts: Seq[RankSnapshot]) {

  /** The groups of ranks that the order of its sums depended on. */
  def groups: RankGroups = RankGroups.by(parts.map(_.group).toIndexedSeq)

  /**
   * The vector `name`, put together from all ranks' ranges; None when no rank wrote any.
   *
   * @throws sparkdlbench.common.ConfigurationException
   *   the ranges do not make a vector of `length` values, each exactly once
   */
  def vector(name: String, length: Int): Option[Array[Float]] = {
    val ranges = parts.flatMap(_.ranges).filter(_.name == name)
    if (ranges.isEmpty) None
    else {
      Snapshot.untiled(ranges.map(range => (range.from, range.values.length)), Some(length)).foreach { why =>
        throw new ConfigurationException(
          s"The checkpoint after step $step does not hold each value of '$name' once: $why. It is not of this model, or its files were mixed. " +
            "Resume with the model settings of the run that wrote it, or from another checkpoint."
        )
      }
      val whole = new Array[Float](length)
      ranges.foreach(range => System.arraycopy(range.values, 0, whole, range.from, range.values.length))
      Some(whole)
    }
  }

  /**
   * The vector `name`, which a checkpoint of these settings has.
   *
   * @throws sparkdlbench.common.ConfigurationException
   *   no rank wrote any of it, or as `vector`
   */
  def required(name: String, length: Int): Array[Float] = vector(name, length).getOrElse(
    throw new ConfigurationException(
      s"The checkpoint after step $step holds no '$name': it was written with another model, algorithm or optimizer. Resume with the settings of the " +
        "run that wrote it."
    )
  )

  /** Required vectors of `length` values by name, each put together once however often it is asked for. */
  def vectors(length: Int): String => Array[Float] = {
    val made = mutable.Map.empty[String, Array[Float]]
    name => made.getOrElseUpdate(name, required(name, length))
  }
}

object Snapshot {

  /**
   * Why ranges do not cover a vector's values exactly once; None where they do.
   *
   * @param ranges
   *   (first value, number of values)
   * @param length
   *   of the vector, where it is known
   */
  private[sparkdlbench] def untiled(ranges: Seq[(Int, Int)], length: Option[Int]): Option[String] = {
    val sorted = ranges.sorted
    val starts = sorted.scanLeft(0L) { case (_, (from, count)) => from.toLong + count }
    val end = starts.last
    sorted
      .zip(starts)
      .collectFirst {
        case ((from, count), _) if from < 0 || count < 0 => s"a range begins at $from and has $count values"
        case ((from, _), at) if from > at => s"values $at to ${from - 1} are missing"
        case ((from, count), at) if from < at =>
          s"values $from to ${math.min(at, from.toLong + count) - 1} are there twice"
      }
      .orElse(if (end > Int.MaxValue) Some(s"it has $end values, at most ${Int.MaxValue} are supported") else None)
      .orElse(length.filter(_ != end).map(wanted => s"it has $end values and should have $wanted"))
  }
}
