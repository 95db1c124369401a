package sparkdlbench.algorithm

import breeze.generic.UFunc
import breeze.linalg.{scaleAdd, NumericOps}
import breeze.linalg.operators.{OpAdd, OpMulInner, OpMulScalar, OpSet, OpSub}
import breeze.linalg.support.{CanCopy, CanCreateZerosLike}
import breeze.math.MutableInnerProductModule
import breeze.optimize.{DiffFunction, FirstOrderMinimizer, LBFGS}
import sparkdlbench.config.Settings
import sparkdlbench.optimizer.SgdVariant
import sparkdlbench.rank.Snapshot

/**
 * A vector of which each rank holds the values that it owns.
 *
 * @param sum
 *   over the ranks; a collective call
 */
private final class Shard(val values: Array[Float], val sum: Double => Double) extends NumericOps[Shard] {
  def repr: Shard = this
  def copied: Shard = new Shard(values.clone(), sum)

  def dot(other: Shard): Double = {
    var own = 0.0
    var i = 0
    while (i < values.length) { own += values(i).toDouble * other.values(i); i += 1 }
    sum(own)
  }

  /** this = factor × this + share × other. */
  def combine(factor: Double, other: Shard, share: Double): Unit = {
    var i = 0
    while (i < values.length) { values(i) = (factor * values(i) + share * other.values(i)).toFloat; i += 1 }
  }

  /** A collective call. */
  def sameAs(other: Shard): Boolean = sum(if (java.util.Arrays.equals(values, other.values)) 0.0 else 1.0) == 0.0
}

private object Shard {

  /** What Breeze needs to calculate with them. */
  val space: MutableInnerProductModule[Shard, Double] = {
    type Binary[Op, Out] = UFunc.UImpl2[Op, Shard, Shard, Out]
    type InPlace[Op] = UFunc.InPlaceImpl2[Op, Shard, Shard]
    def combined(one: Shard, factor: Double, other: Shard, share: Double): Shard = {
      val out = one.copied
      out.combine(factor, other, share)
      out
    }
    implicit val zeros: CanCreateZerosLike[Shard, Shard] = (like: Shard) =>
      new Shard(new Array(like.values.length), like.sum)
    implicit val copy: CanCopy[Shard] = (one: Shard) => one.copied
    implicit val times: UFunc.UImpl2[OpMulScalar.type, Shard, Double, Shard] =
      (one: Shard, factor: Double) => combined(one, factor, one, 0)
    implicit val plus: Binary[OpAdd.type, Shard] = (one: Shard, other: Shard) => combined(one, 1, other, 1)
    implicit val minus: Binary[OpSub.type, Shard] = (one: Shard, other: Shard) => combined(one, 1, other, -1)
    implicit val inner: Binary[OpMulInner.type, Double] = (one: Shard, other: Shard) => one.dot(other)
    implicit val scaleInto: UFunc.InPlaceImpl2[OpMulScalar.type, Shard, Double] =
      (one: Shard, factor: Double) => one.combine(factor, one, 0)
    implicit val plusInto: InPlace[OpAdd.type] = (one: Shard, other: Shard) => one.combine(1, other, 1)
    implicit val minusInto: InPlace[OpSub.type] = (one: Shard, other: Shard) => one.combine(1, other, -1)
    implicit val setInto: InPlace[OpSet.type] = (one: Shard, other: Shard) => one.combine(0, other, 1)
    implicit val scaledInto: UFunc.InPlaceImpl3[scaleAdd.type, Shard, Double, Shard] =
      (one: Shard, share: Double, other: Shard) => one.combine(1, other, share)
    MutableInnerProductModule.make[Shard, Double]
  }
}

/** Breeze's L-BFGS with its history in sight, for checkpoints. The function keeps the last point's values itself. */
private final class OpenLbfgs(memory: Int, tolerance: Double)(implicit space: MutableInnerProductModule[Shard, Double])
    extends LBFGS[Shard](
      FirstOrderMinimizer.gradientConverged[Shard](tolerance).orElse(FirstOrderMinimizer.searchFailed[Shard]),
      memory
    ) {
  import space._

  /** Steps and changes of the gradient, newest first. */
  var pairs: List[(Shard, Shard)] = Nil

  override protected def adjustFunction(f: DiffFunction[Shard]): DiffFunction[Shard] = f

  override protected def initialHistory(f: DiffFunction[Shard], x: Shard): History = {
    pairs = Nil
    super.initialHistory(f, x)
  }

  override protected def updateHistory(
      newX: Shard,
      newGrad: Shard,
      newValue: Double,
      f: DiffFunction[Shard],
      old: State
  ): History = {
    val pair = (newX - old.x, newGrad - old.grad)
    pairs = (pair :: pairs).take(memory)
    old.history.updated(pair._1, pair._2)
  }

  /** @param kept pairs to go on with, newest first */
  def begin(f: DiffFunction[Shard], x: Shard, iteration: Int, kept: List[(Shard, Shard)]): State = {
    val state = initialState(f, x)
    pairs = kept
    val history = kept.reverse.foldLeft(state.history) { case (sofar, (step, change)) => sofar.updated(step, change) }
    state.copy(iter = iteration, history = history)
  }

  def finished(state: State): Boolean = convergenceCheck(state, state.convergenceInfo).isDefined
}

/**
 * What the iterations ask of those who compute. All calls are collective where several ranks hold parts of the vectors.
 */
private trait LbfgsPasses {

  /** Brings `x` to all who compute. */
  def place(x: Shard): Unit

  /** The gradient over all rows at the point that was placed, the mean loss, and what `step` is to return for it. */
  def pass(): LbfgsPass
}

private final case class LbfgsPass(meanLoss: Double, gradient: Shard, lossSum: Double)

/**
 * The iterations of a run, wherever its vectors lie.
 *
 * @param start
 *   where everybody is when the run begins
 */
private final class LbfgsIterations(settings: Settings, start: Shard, passes: LbfgsPasses) {
  private val minimizer = new OpenLbfgs(settings(Lbfgs.pairs), settings(Lbfgs.tolerance))(Shard.space)
  private val decay = settings(SgdVariant.weightDecay)

  /** The point in everybody's engine. */
  private var shown: Shard = start
  private var begun: (Shard, Int, List[(Shard, Shard)]) = (start, 0, Nil)
  private var current: Option[minimizer.State] = None
  private var iterations: Iterator[minimizer.State] = Iterator.empty
  private var lossSum = 0.0
  private var accepted = 0.0

  /** Passes over all rows that there were. */
  var made = 0L

  /** Loss and gradient over all training rows; a collective call. Asked twice in a row for one point it answers from memory. */
  private object Loss extends DiffFunction[Shard] {
    private var last: Option[(Shard, Double, Shard)] = None

    def calculate(x: Shard): (Double, Shard) = {
      val known = last.filter(_._1.sameAs(x))
      val (_, value, slope) = known.getOrElse {
        if (shown ne x) put(x)
        val (value, slope) = pass(x)
        last = Some((x.copied, value, slope))
        last.get
      }
      shown = x
      (value, slope.copied)
    }
  }

  /** One iteration, unless the run stands still. @return the `lossSum` of the point that it reached */
  def step(): Double = {
    if (current.isEmpty) begin()
    if (!minimizer.finished(current.get)) {
      current = Some(iterations.next())
      if (shown eq current.get.x) accepted = lossSum
    }
    accepted
  }

  /** The point that was reached. */
  def point: Shard = current.fold(begun._1)(_.x)

  /** Makes everybody hold it. */
  def drain(): Unit = if (shown ne point) put(point)

  /** What a checkpoint has, by name, but for the iterations' number. */
  def vectors: Seq[(String, Shard)] = {
    val pairs = current.fold(begun._3)(_ => minimizer.pairs)
    ("weights" -> point) +: pairs.zipWithIndex.flatMap { case ((step, change), age) =>
      Seq(Lbfgs.stepName(age) -> step, Lbfgs.changeName(age) -> change)
    }
  }
  def iteration: Int = current.fold(begun._2)(_.iter)

  /**
   * Goes on from a checkpoint; before the first step.
   *
   * @param weights
   *   the point, which everybody holds already
   * @param vector
   *   one by its name, if there is one
   */
  def restore(weights: Shard, snapshot: Snapshot)(vector: String => Option[Shard]): Unit = {
    shown = weights
    val pairs = Iterator
      .from(0)
      .map(age =>
        for { step <- vector(Lbfgs.stepName(age)); change <- vector(Lbfgs.changeName(age)) } yield (step, change)
      )
      .takeWhile(_.isDefined)
      .flatten
      .take(settings(Lbfgs.pairs))
      .toList
    begun = (weights, snapshot.required(Lbfgs.Iterations, 1).head.toInt, pairs)
  }

  private def begin(): Unit = {
    val (x, iteration, pairs) = begun
    val state = minimizer.begin(Loss, x, iteration, pairs)
    begun = (x, iteration, Nil) // the pairs are the minimizer's from here on, which drops the oldest ones
    accepted = lossSum
    current = Some(state)
    iterations = minimizer.infiniteIterations(Loss, state)
    iterations.next() // the state itself
  }

  private def put(x: Shard): Unit = {
    passes.place(x)
    shown = x
  }

  private def pass(x: Shard): (Double, Shard) = {
    val found = passes.pass()
    made += 1
    lossSum = found.lossSum
    if (decay == 0) (found.meanLoss, found.gradient)
    else {
      found.gradient.combine(1, x, decay)
      (found.meanLoss + decay / 2 * x.dot(x), found.gradient)
    }
  }
}
