package sparkdlbench.algorithm

import breeze.generic.UFunc
import breeze.linalg.{scaleAdd, NumericOps}
import breeze.linalg.operators.{OpAdd, OpMulInner, OpMulScalar, OpSet, OpSub}
import breeze.linalg.support.{CanCopy, CanCreateZerosLike}
import breeze.math.MutableInnerProductModule
import breeze.optimize.{DiffFunction, FirstOrderMinimizer, LBFGS}
import sparkdlbench.codec.ChosenCodecs
import sparkdlbench.collective.NumberSums
import sparkdlbench.config.{Key, RunKeys, Settings}
import sparkdlbench.data.BatchPlan
import sparkdlbench.metrics.Phase
import sparkdlbench.model.DropoutKind
import sparkdlbench.optimizer.{LearningRateSchedule, SgdVariant}
import sparkdlbench.rank.{RankContext, RunContext, Snapshot, StateRange}
import sparkdlbench.topology.Topology
import sparkdlbench.transport.{RankGroups, Transport}
import sparkdlbench.vector.FlatBuffer

import scala.util.Try

/**
 * Limited-memory BFGS on the whole training set (Liu and Nocedal, Mathematical Programming 45, 1989), as MLlib trains its nets, with Breeze's
 * direction and its line search for the strong Wolfe conditions. A step is one iteration: one pass over all training rows, or
 * as many as the line search asks for; a run's results count them.
 *
 * Each pass is a step of the topology: gradients are summed at their owners, and the next point to look at goes from the owners
 * to everybody. Point, gradient and the last `lbfgs.memory` pairs lie with the owners, 1/N at each, and Breeze runs at every rank
 * on these shards, whose inner products are sums over the ranks (as Chen, Wang and Zhou, "Large-scale L-BFGS using MapReduce",
 * NIPS 2014, do). So all ranks get the same numbers and decide alike.
 *
 * Bytes a worker and pass: 2(N−1)/N · S, and 8 bytes an inner product, of which an iteration makes 4 · memory and a few.
 */
final class Lbfgs extends Algorithm {
  import Lbfgs._

  def name = "lbfgs"
  def doc =
    "L-BFGS on the whole training set with a line search for the strong Wolfe conditions (Breeze); a step is an iteration"
  def staleness = "0"
  override def keys: Seq[Key[_]] = Seq(pairs, tolerance, rows, SgdVariant.weightDecay, SyncSgd.bucketBytes)
  override def fullBatch = true
  override def rowsAtOnce(settings: Settings, plan: BatchPlan): Int = math.min(plan.maxShare, settings(rows))

  def kept(optimizer: Seq[String]): Seq[String] = Seq("weights", Iterations)

  override def refuses(settings: Settings): Option[String] = {
    def refused(what: String, remedy: String) = Some(
      s"Algorithm lbfgs finds its own steps by a line search over the whole training set, and $what. $remedy"
    )
    val codecs = Seq(ChosenCodecs.gradient(settings), ChosenCodecs.parameters(settings))
    if (Try(Class.forName("breeze.optimize.LBFGS")).isFailure)
      refused(
        "needs the library Breeze, which is not on the class path (Spark's distributions bring it with MLlib)",
        "Add org.scalanlp:breeze 2.1.0, or spark-mllib, to the application."
      )
    else if (settings(RunKeys.optimizer) != "sgd" || settings(SgdVariant.momentum) != 0)
      refused(
        s"uses no optimizer: optimizer.name is ${settings(RunKeys.optimizer)}, with momentum ${settings(SgdVariant.momentum)}",
        "Leave optimizer.name = sgd and optimizer.momentum = 0, which it does not read."
      )
    else if (settings(LearningRateSchedule.name) != "constant" || settings(LearningRateSchedule.warmupSteps) > 0)
      refused(
        s"has no learning rate that schedule.name = ${settings(LearningRateSchedule.name)} with ${settings(LearningRateSchedule.warmupSteps)} steps of warm-up could change",
        "Leave schedule.name = constant and schedule.warmup_steps = 0."
      )
    else
      codecs.find(!_.lossless).flatMap { codec =>
        refused(
          s"compares losses that differ in their last digits, which codec ${codec.name} rounds away",
          "Use codec = fp32."
        )
      }
  }

  override def refusesModel(setup: RunContext): Option[String] = {
    val drops = setup.spec.layers.find(DropoutKind.drops).map { layer =>
      s"Algorithm lbfgs compares the loss at several points, which must not change from pass to pass, and layer '${layer.name}' of model " +
        s"${setup.spec.name} drops other values in every pass. Use a model without dropout, or another algorithm, such as sync-sgd."
    }
    def decays =
      setup.spec.layout.find(_.decay != 1).filter(_ => setup.settings(SgdVariant.weightDecay) > 0).map { tensor =>
        s"Algorithm lbfgs takes optimizer.weight_decay = ${setup.settings(SgdVariant.weightDecay)} as part of the loss, the same for all weights, and " +
          s"'${tensor.name}' of model ${setup.spec.name} is to have ${tensor.decay} times that. Set optimizer.weight_decay=0, or use another algorithm, such as sync-sgd."
      }
    drops.orElse(decays)
  }

  def start(rank: RankContext, transport: Transport, topology: Topology): RankAlgorithm =
    new LbfgsRank(rank, transport, topology)

  /**
   * On the heap the pairs and, when an iteration ends: the point and the gradient that it began at
   * and ended at, the direction, the point and the gradient that the function remembers, the new pair, and the run's first point. A line search needs
   * fewer.
   */
  def memory(setup: RunContext, topology: Topology, groups: RankGroups): AlgorithmMemory = {
    val parameters = setup.spec.parameterCount
    val bucketLength = SyncSgd.bucketLength(setup.settings)
    val collective = topology.memory(groups, parameters, bucketLength, setup.codec, setup.parameterCodec)
    val kept = 2L * setup.settings(pairs)
    AlgorithmMemory(
      collective,
      weightCopies = 0,
      optimized = 0,
      written = (1 + kept) * collective.owned,
      read = (1 + kept) * parameters,
      heap = 4 * (kept + 10) * collective.owned
    )
  }
}

object Lbfgs {
  val pairs: Key[Int] =
    Key.int("lbfgs.memory", "10", 1, "Pairs of steps and changes of the gradient that lbfgs remembers")
  val tolerance: Key[Double] = Key.number(
    "lbfgs.tolerance",
    "1e-5",
    0,
    "lbfgs stands still once the gradient is no longer than this times the loss"
  )
  val rows: Key[Int] =
    Key.int("lbfgs.rows", "1024", 1, "Rows that a worker computes at once in a pass of lbfgs; they bound its memory")

  private[algorithm] val Iterations = "lbfgs.iterations"
  private[algorithm] def stepName(age: Int): String = s"lbfgs.step.$age"
  private[algorithm] def changeName(age: Int): String = s"lbfgs.change.$age"
}

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

private final class LbfgsRank(rank: RankContext, transport: Transport, topology: Topology) extends RankAlgorithm {
  private val settings = rank.setup.settings
  private val sums = new NumberSums(transport, 1)
  private val gradient = rank.gradients
  private val collective =
    topology.bind(
      transport,
      gradient,
      rank.parameters,
      SyncSgd.bucketLength(settings),
      rank.setup.codec,
      rank.setup.parameterCodec
    )
  private val buckets = 0 until collective.buckets
  private val ranges = buckets.map(collective.owned)
  private val minimizer = new OpenLbfgs(settings(Lbfgs.pairs), settings(Lbfgs.tolerance))(Shard.space)
  private val decay = settings(SgdVariant.weightDecay)
  private var sequence = 0L

  /** Between `reduce` and `publish` of a step of the collective. */
  private var reduced = false

  /** The point in everybody's engine. */
  private var shown: Shard = read(rank.parameters)
  private var begun: (Shard, Int, List[(Shard, Shard)]) = (shown, 0, Nil)
  private var current: Option[minimizer.State] = None
  private var iterations: Iterator[minimizer.State] = Iterator.empty
  private var passes = 0L
  private var ownLoss = 0.0

  /** Loss and gradient over all training rows; a collective call. Asked twice in a row for one point it answers from memory. */
  private object Loss extends DiffFunction[Shard] {
    private var last: Option[(Shard, Double, Shard)] = None

    def calculate(x: Shard): (Double, Shard) = {
      val known = last.filter(_._1.sameAs(x))
      val (_, value, slope) = known.getOrElse {
        if (shown ne x) place(x)
        val (value, slope) = pass(x)
        last = Some((x.copied, value, slope))
        last.get
      }
      shown = x
      (value, slope.copied)
    }
  }

  def step(step: Long): Double = {
    val timer = rank.timer
    timer.switch(Phase.Update)
    if (current.isEmpty) begin()
    if (!minimizer.finished(current.get)) {
      current = Some(iterations.next())
      if (shown eq current.get.x) accepted = ownLoss
    }
    accepted
  }
  private var accepted = 0.0

  private def begin(): Unit = {
    val (x, iteration, pairs) = begun
    val state = minimizer.begin(Loss, x, iteration, pairs)
    begun = (x, iteration, Nil) // the pairs are the minimizer's from here on, which drops the oldest ones
    accepted = ownLoss
    current = Some(state)
    iterations = minimizer.infiniteIterations(Loss, state)
    iterations.next() // the state itself
  }

  /** One pass over all rows at the point that is shown. */
  private def pass(x: Shard): (Double, Shard) = {
    collective.flush()
    ownLoss = rank.computeGradientInParts(0)
    passes += 1
    rank.timer.switch(Phase.Encode)
    buckets.foreach(collective.contribute(_, sequence))
    rank.timer.switch(Phase.Reduce)
    buckets.foreach(collective.reduce(_, sequence))
    reduced = true
    val slope = read(gradient)
    val loss = sum(ownLoss) / rank.setup.rowsOf(0)
    rank.timer.switch(Phase.Update)
    if (decay == 0) (loss, slope)
    else {
      slope.combine(1, x, decay)
      (loss + decay / 2 * x.dot(x), slope)
    }
  }

  /** Brings `x` from its owners into everybody's engine. */
  private def place(x: Shard): Unit = {
    collective.flush()
    if (!reduced) { // a step of the collective begins with sums, whether anybody wants them or not
      buckets.foreach(collective.contribute(_, sequence))
      buckets.foreach(collective.reduce(_, sequence))
    }
    var at = 0
    ranges.foreach { case (from, until) =>
      rank.parameters.floats.put(from, x.values, at, until - from)
      at += until - from
    }
    rank.timer.switch(Phase.Encode)
    buckets.foreach(collective.publish(_, sequence))
    rank.timer.switch(Phase.Decode)
    buckets.foreach(collective.collect(_, sequence))
    collective.flush()
    rank.timer.switch(Phase.Update)
    sequence += 1
    reduced = false
    shown = x
  }

  def drain(): Unit = {
    collective.flush()
    if (shown ne point) place(point)
  }

  private def point: Shard = current.fold(begun._1)(_.x)

  def weights: Seq[(Int, Array[Float])] = split(point)

  def state: Seq[StateRange] = {
    val (iteration, pairs) = current.fold((begun._2, begun._3))(state => (state.iter, minimizer.pairs))
    def ranges(name: String, of: Shard) = split(of).map { case (from, values) => StateRange(name, from, values) }
    ranges("weights", point) ++
      pairs.zipWithIndex.flatMap { case ((step, change), age) =>
        ranges(Lbfgs.stepName(age), step) ++ ranges(Lbfgs.changeName(age), change)
      } ++ (if (rank.rank == 0) Seq(StateRange(Lbfgs.Iterations, 0, Array(iteration.toFloat))) else Nil)
  }

  def restore(snapshot: Snapshot): Unit = {
    val length = rank.parameters.length
    // One whole vector at a time.
    def owned(name: String): Option[Shard] = snapshot.vector(name, length).map(ownedOf)
    rank.parameters.floats.put(0, snapshot.required("weights", length))
    shown = read(rank.parameters)
    val pairs = Iterator
      .from(0)
      .map { age =>
        for { step <- owned(Lbfgs.stepName(age)); change <- owned(Lbfgs.changeName(age)) } yield (step, change)
      }
      .takeWhile(_.isDefined)
      .flatten
      .take(settings(Lbfgs.pairs))
      .toList
    begun = (shown, snapshot.required(Lbfgs.Iterations, 1).head.toInt, pairs)
  }

  override def counts: Map[String, Seq[Long]] =
    if (rank.rank == 0) Map("passes" -> Seq(passes), "sums" -> Seq(sums.made)) else Map.empty

  private def sum(own: Double): Double = {
    val number = Array(own)
    sums.sum(number)
    number(0)
  }

  /** The owned values of a whole vector. */
  private def read(vector: FlatBuffer): Shard = {
    val values = new Array[Float](ranges.map { case (from, until) => until - from }.sum)
    var at = 0
    ranges.foreach { case (from, until) =>
      vector.floats.get(from, values, at, until - from)
      at += until - from
    }
    new Shard(values, sum)
  }

  private def ownedOf(whole: Array[Float]): Shard = {
    val values = new Array[Float](ranges.map { case (from, until) => until - from }.sum)
    var at = 0
    ranges.foreach { case (from, until) =>
      System.arraycopy(whole, from, values, at, until - from)
      at += until - from
    }
    new Shard(values, sum)
  }

  private def split(shard: Shard): Seq[(Int, Array[Float])] = {
    val starts = ranges.scanLeft(0) { case (at, (from, until)) => at + until - from }
    ranges.zip(starts).map { case ((from, until), at) => (from, shard.values.slice(at, at + until - from)) }
  }
}
