package sparkdlbench.data

import org.apache.spark.SparkContext
import org.apache.spark.util.LongAccumulator

/**
 * How far the decoding of a set is.
 *
 * @param done
 *   parts that are decoded, of `parts`
 * @param rows
 *   in them
 */
final case class DecodingState(source: String, done: Long, parts: Int, rows: Long)

/** The decoding that goes on in this driver, for whoever waits for a run that has not begun; written by one thread, read by any. */
object Decoding {
  private final case class Going(source: String, parts: Int, done: LongAccumulator, rows: LongAccumulator)
  @volatile private var going: Option[Going] = None

  /** The group of its Spark job. */
  private val Group = "sparkdl-decoding"

  /** None where no set is being decoded. */
  def now: Option[DecodingState] = going.map { each =>
    // A task that Spark made twice has counted twice.
    DecodingState(each.source, math.min(each.done.sum, each.parts.toLong), each.parts, each.rows.sum)
  }

  /** Ends it; whoever waits for it is told that it was cancelled. */
  def cancel(sc: SparkContext): Unit = sc.cancelJobGroup(Group)

  /** Runs `body`, which counts the parts that it has decoded, and their rows, with the two accumulators. */
  private[data] def watched[T](sc: SparkContext, source: String, parts: Int)(
      body: (LongAccumulator, LongAccumulator) => T
  ): T = {
    val (done, rows) = (sc.longAccumulator("decoded parts"), sc.longAccumulator("decoded rows"))
    going = Some(Going(source, parts, done, rows))
    sc.setJobGroup(Group, s"sparkdl-bench: decodes $source", interruptOnCancel = true)
    try body(done, rows)
    finally {
      sc.clearJobGroup()
      going = None
    }
  }
}
