package sparkdlbench.train

import sparkdlbench.collective.NumberSums
import sparkdlbench.config.{Key, KeyGroup, RunKeys, Settings}
import sparkdlbench.engine.Evaluation
import sparkdlbench.loss.{Loss => RunLoss}
import sparkdlbench.topology.Ps
import sparkdlbench.transport.Transport

/**
 * The weights of the best evaluation so far (`keep_best`). After a restart from a checkpoint the search begins anew.
 *
 * @param epoch
 *   from 0
 * @param weights
 *   the parts that a rank answers for: (first value, values)
 */
final case class Best(epoch: Int, test: Evaluation, weights: Seq[(Int, Array[Float])], statistics: Array[Float])

object Best {
  val Off = "off"
  val Accuracy = "accuracy"
  val Loss = "loss"

  val keep: Key[String] = Key.choice(
    "keep_best",
    Off,
    Seq(Off, Accuracy, Loss),
    "Also keep the weights of the evaluation with the highest test accuracy, or with the lowest test loss"
  )

  val patience: Key[Int] = Key.int(
    "early_stopping",
    "0",
    0,
    "End the run after so many evaluations in a row that were no better than the best (keep_best says by what); 0: never"
  )

  def kept(settings: Settings): Boolean = settings(keep) != Off

  /** @param waited evaluations since the best one */
  private[train] def isOver(settings: Settings, waited: Int): Boolean =
    settings(patience) > 0 && waited >= settings(patience)

  def refuses(settings: Settings): Option[String] =
    if (settings(patience) > 0 && !kept(settings))
      Some(
        s"early_stopping = ${settings(patience)} ends a run whose evaluations get no better, and keep_best = off does not say by what they are compared. Set " +
          "keep_best = loss or accuracy, or early_stopping = 0."
      )
    else if (settings(patience) > 0 && settings(RunKeys.evaluateEvery) == 0)
      Some(
        s"early_stopping = ${settings(patience)} looks at evaluations, and with evaluate_every = 0 there is one alone, at the end. Set evaluate_every = 1, or " +
          "early_stopping = 0."
      )
    else if (kept(settings) && Ps.own(settings))
      Some(
        s"keep_best = ${settings(keep)} has all ranks compare each evaluation, and servers with tasks of their own (ps.place = own) take no part in " +
          "evaluations. Set keep_best = off, or ps.place = workers."
      )
    else if (settings(keep) == Accuracy && RunLoss.of(settings).isRegression)
      Some(
        s"keep_best = accuracy asks for the highest share of test rows classified rightly, and loss.name=${settings(RunKeys.loss)} is for regression, which has " +
          "none. Set keep_best = loss, or off."
      )
    else None

  /** Whether `found` is better than the best so far; of equals the first stays. */
  def isBetter(settings: Settings, found: Evaluation, sofar: Option[Evaluation]): Boolean =
    NonFinite.isFinite(found.lossSum) && found.rows > 0 && sofar.forall { best =>
      if (settings(keep) == Accuracy) found.accuracy > best.accuracy else found.loss < best.loss
    }

  /** The parts of all ranks as one vector. */
  private[train] def whole(parts: Seq[Best], length: Int): Best =
    parts.head.copy(weights = Seq((0, joined(parts.flatMap(_.weights), length))))

  private[train] def joined(parts: Seq[(Int, Array[Float])], length: Int): Array[Float] = {
    val all = new Array[Float](length)
    for ((from, values) <- parts) System.arraycopy(values, 0, all, from, values.length)
    all
  }
}

/** One rank's side. Each evaluation is summed over the ranks, so that all agree: 24 bytes to rank 0 and back, once an evaluation. */
private[train] final class BestKeeper(settings: Settings, sums: Option[NumberSums]) {
  var best: Option[Best] = None
  private var waited = 0

  /** Whether the run is over (`early_stopping`): the same at all ranks, which have compared the same sums. */
  def isOver: Boolean = Best.isOver(settings, waited)

  /** A collective call. @param own this rank's part of the test rows */
  def look(epoch: Int, own: Evaluation, weights: => Seq[(Int, Array[Float])], statistics: => Array[Float]): Unit =
    if (Best.kept(settings)) {
      val numbers = Array(own.rows.toDouble, own.lossSum, own.correct.toDouble)
      sums.foreach(_.sum(numbers))
      val found = Evaluation(numbers(0).toLong, numbers(1), numbers(2).toLong)
      if (Best.isBetter(settings, found, best.map(_.test))) {
        best = Some(Best(epoch, found, weights, statistics))
        waited = 0
      } else waited += 1
    }
}

private[train] object BestKeeper {

  /** What evaluations are summed by, where they are; a collective call. */
  def sums(settings: Settings, transport: Transport): Option[NumberSums] =
    if (!Best.kept(settings) || transport.size == 1 || settings(RunKeys.workers) == 1) None
    else Some(new NumberSums(transport, 3))
}

final class BestKeys extends KeyGroup {
  def keys: Seq[Key[_]] = Seq(Best.keep, Best.patience)
}
