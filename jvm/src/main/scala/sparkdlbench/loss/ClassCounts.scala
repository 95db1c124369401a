package sparkdlbench.loss

import java.nio.{FloatBuffer, LongBuffer}
import scala.collection.immutable.ListMap

/**
 * What precision, recall and F1 are made of: numbers of rows by class, or by label where a row may have several. Immutable; parts of an
 * evaluation are added up.
 *
 * @param hits
 *   rows that are of the class and predicted to be
 * @param said
 *   that are predicted to be
 * @param held
 *   that are of it
 * @param several
 *   whether a row may have any number of the labels, rather than one class
 * @param scores
 *   of two classes, what the area under the ROC curve is made of
 */
final class ClassCounts(
    val hits: Array[Long],
    val said: Array[Long],
    val held: Array[Long],
    val several: Boolean,
    val scores: Option[RocScores]
) extends Serializable {
  def +(other: ClassCounts): ClassCounts = new ClassCounts(
    summed(hits, other.hits),
    summed(said, other.said),
    summed(held, other.held),
    several,
    for (one <- scores; two <- other.scores) yield one + two
  )

  /** Of rows that have one class each: how many they are, and how many are predicted rightly. */
  def rows: Long = held.sum
  def correct: Long = hits.sum

  /**
   * By name, as records have them, and as scikit-learn's precision_score, recall_score, f1_score and roc_auc_score compute them; what is
   * divided by 0 rows is 0. Of two classes those of class 1 and `auc`, None where the test rows have one class alone; of classes also the
   * means over those that occur, `_macro`; of rows with several labels those over all labels, and `_micro`, of all rows' labels at once.
   */
  def measures: ListMap[String, Option[Double]] = {
    val single: Seq[(String, Option[Double])] =
      if (several || hits.length != 2) Nil
      else
        Seq(
          "precision" -> Some(ClassCounts.ratio(hits(1), said(1))),
          "recall" -> Some(ClassCounts.ratio(hits(1), held(1))),
          "f1" -> Some(ClassCounts.ratio(2 * hits(1), said(1) + held(1))),
          "auc" -> scores.flatMap(_.auc)
        )
    val micro: Seq[(String, Option[Double])] =
      if (!several) Nil
      else
        Seq(
          "precision_micro" -> Some(ClassCounts.ratio(hits.sum, said.sum)),
          "recall_micro" -> Some(ClassCounts.ratio(hits.sum, held.sum)),
          "f1_micro" -> Some(ClassCounts.ratio(2 * hits.sum, said.sum + held.sum))
        )
    val macros: Seq[(String, Option[Double])] = Seq(
      "precision_macro" -> mean(at => ClassCounts.ratio(hits(at), said(at))),
      "recall_macro" -> mean(at => ClassCounts.ratio(hits(at), held(at))),
      "f1_macro" -> mean(at => ClassCounts.ratio(2 * hits(at), said(at) + held(at)))
    )
    ListMap(single ++ micro ++ macros: _*)
  }

  /** Over the classes that occur among labels or predictions, or over all labels. */
  private def mean(of: Int => Double): Option[Double] = {
    val counted = hits.indices.filter(at => several || said(at) + held(at) > 0)
    if (counted.isEmpty) None else Some(counted.map(of).sum / counted.size)
  }

  private def summed(one: Array[Long], other: Array[Long]): Array[Long] = {
    val sums = one.clone()
    var at = 0
    while (at < sums.length) { sums(at) += other(at); at += 1 }
    sums
  }
}

private object ClassCounts {
  def ratio(part: Long, whole: Long): Double = if (whole == 0) 0.0 else part.toDouble / whole
}

/** Counts rows of one class each. One thread. */
final class ClassCounter(classes: Int) {
  private val hits, said, held = new Array[Long](classes)
  private val scores = if (classes == 2) Some(new RocScores.Builder) else None

  /**
   * @param label
   *   the row's class
   * @param found
   *   the class that is predicted; -1: none
   * @param score
   *   of two classes: grows with how likely class 1 is
   */
  def add(label: Int, found: Int, score: Float): Unit = {
    held(label) += 1
    if (found >= 0) said(found) += 1
    if (found == label) hits(label) += 1
    scores.foreach(_.add(label == 1, score))
  }

  def result: ClassCounts = new ClassCounts(hits, said, held, several = false, scores.map(_.result))
}

object ClassCounter {

  /**
   * Of a batch's class scores, rows × classes from place 0 on. Predicted is the class of the highest; the lowest class wins a tie, NaN never
   * wins.
   *
   * @param ignored
   *   label of rows that do not count
   */
  def of(scores: FloatBuffer, labels: LongBuffer, rows: Int, classes: Int, ignored: Option[Int]): ClassCounts = {
    val counter = new ClassCounter(classes)
    var row = 0
    while (row < rows) {
      val label = labels.get(row).toInt
      if (!ignored.contains(label)) {
        val score = if (classes == 2) scores.get(2 * row + 1) - scores.get(2 * row) else 0f
        counter.add(label, highest(scores, row * classes, classes), score)
      }
      row += 1
    }
    counter.result
  }

  private def highest(scores: FloatBuffer, first: Int, classes: Int): Int = {
    var (best, most, at) = (-1, Float.NegativeInfinity, 0)
    while (at < classes) {
      val value = scores.get(first + at)
      if (value > most) { best = at; most = value }
      at += 1
    }
    best
  }
}

/** Counts rows with several labels. One thread. */
final class AnswerCounter(labels: Int) {
  private val hits, said, held = new Array[Long](labels)

  def add(label: Int, isHeld: Boolean, isSaid: Boolean): Unit = {
    if (isHeld) held(label) += 1
    if (isSaid) said(label) += 1
    if (isHeld && isSaid) hits(label) += 1
  }

  def result: ClassCounts = new ClassCounts(hits, said, held, several = true, None)
}
