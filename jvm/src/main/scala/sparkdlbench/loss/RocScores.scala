package sparkdlbench.loss

import java.util.Arrays

/**
 * The scores of some rows of two classes, from which the area under the ROC curve is computed exactly, whatever parts the rows come in: 4
 * bytes a row. Immutable.
 *
 * @param rows
 *   how many they are
 * @param parts
 *   the scores of rows of class 1 and of class 0; none where the rows are more than `Most`
 */
final class RocScores private (val rows: Long, private val parts: List[RocScores.Part]) extends Serializable {

  /** Costs as much as `other` has parts. */
  def +(other: RocScores): RocScores = {
    val all = rows + other.rows
    new RocScores(all, if (all > RocScores.Most) Nil else other.parts ::: parts)
  }

  /**
   * Of all pairs of a row of class 1 and one of class 0, in how many the first has the higher score, ties counting half: the area under the
   * ROC curve (Hanley and McNeil, 1982). None where there is no such pair, a score is NaN, or the rows are more than `Most`.
   */
  def auc: Option[Double] = {
    val (yes, no) = (joined(_.yes), joined(_.no))
    // NaN is sorted behind all numbers.
    val isNumber = Seq(yes, no).forall(_.lastOption.forall(!_.isNaN))
    if (yes.isEmpty || no.isEmpty || !isNumber) None
    else {
      var (below, upTo, pairs) = (0, 0, 0.0)
      yes.foreach { score =>
        while (below < no.length && no(below) < score) below += 1
        upTo = math.max(upTo, below)
        while (upTo < no.length && no(upTo) == score) upTo += 1
        pairs += below + (upTo - below) / 2.0
      }
      Some(pairs / (yes.length.toDouble * no.length))
    }
  }

  /** Sorted; -0.0 is before 0.0, and compared as equal. */
  private def joined(of: RocScores.Part => Array[Float]): Array[Float] = {
    val all = new Array[Float](parts.map(of(_).length).sum)
    parts.foldLeft(0) { (at, part) =>
      System.arraycopy(of(part), 0, all, at, of(part).length)
      at + of(part).length
    }
    Arrays.sort(all)
    all
  }
}

object RocScores {

  /** Test rows whose scores are kept: 16 MB. `Model.evaluate` has the area of any number of rows. */
  val Most: Long = 1L << 22

  private final case class Part(yes: Array[Float], no: Array[Float])

  /** One thread. */
  final class Builder {
    private val yes, no = Array.newBuilder[Float]
    private var rows = 0L

    def add(isYes: Boolean, score: Float): Unit = {
      (if (isYes) yes else no) += score
      rows += 1
    }

    def result: RocScores = new RocScores(rows, List(Part(yes.result(), no.result())))
  }
}
