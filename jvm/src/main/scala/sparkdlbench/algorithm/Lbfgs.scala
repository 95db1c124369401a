package sparkdlbench.algorithm

import sparkdlbench.codec.ChosenCodecs
import sparkdlbench.collective.NumberSums
import sparkdlbench.config.{Key, RunKeys, Settings}
import sparkdlbench.data.BatchPlan
import sparkdlbench.metrics.Phase
import sparkdlbench.model.DropoutKind
import sparkdlbench.optimizer.{Clipping, LearningRateSchedule, SgdVariant}
import sparkdlbench.rank.{RankContext, RunContext, Snapshot, StateRange}
import sparkdlbench.topology.Topology
import sparkdlbench.transport.{RankGroups, Transport}
import sparkdlbench.vector.FlatBuffer

import java.nio.FloatBuffer
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
    else if (settings(Clipping.norm) > 0)
      refused(
        s"needs the gradient as it is, which clip_norm = ${settings(Clipping.norm)} would shorten",
        "Set clip_norm = 0."
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

  override def isAtDriver: Boolean = true
  override def atDriver(passes: DriverPasses): DriverSide = new LbfgsDriver(passes)
  override def driverHeap(setup: RunContext): Long = 4L * (2L * setup.settings(pairs) + 10) * setup.spec.parameterCount

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
  private[algorithm] def iterations(made: Int): StateRange = StateRange(Iterations, 0, Array(made.toFloat))
}

private final class LbfgsRank(rank: RankContext, transport: Transport, topology: Topology)
    extends RankAlgorithm
    with LbfgsPasses {
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
  private var sequence = 0L

  /** Between `reduce` and `publish` of a step of the collective. */
  private var reduced = false
  private val iterations = new LbfgsIterations(settings, read(rank.parameters), this)

  def step(step: Long): Double = {
    rank.timer.switch(Phase.Update)
    iterations.step()
  }

  /** One pass over all rows at the point that is shown. */
  def pass(): LbfgsPass = {
    collective.flush()
    val own = rank.computeGradientInParts(0)
    rank.timer.switch(Phase.Encode)
    buckets.foreach(collective.contribute(_, sequence))
    rank.timer.switch(Phase.Reduce)
    buckets.foreach(collective.reduce(_, sequence))
    reduced = true
    val slope = read(gradient)
    val loss = sum(own) / rank.setup.rowsOf(0)
    rank.timer.switch(Phase.Update)
    LbfgsPass(loss, slope, own)
  }

  /** Brings `x` from its owners into everybody's engine. */
  def place(x: Shard): Unit = {
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
  }

  def drain(): Unit = {
    collective.flush()
    iterations.drain()
  }

  def weights: Seq[(Int, Array[Float])] = split(iterations.point)

  def state: Seq[StateRange] =
    iterations.vectors.flatMap { case (name, vector) =>
      split(vector).map { case (from, values) => StateRange(name, from, values) }
    } ++ (if (rank.rank == 0) Seq(Lbfgs.iterations(iterations.iteration)) else Nil)

  def restore(snapshot: Snapshot): Unit = {
    val length = rank.parameters.length
    rank.parameters.floats.put(0, snapshot.required("weights", length))
    // One whole vector at a time.
    iterations.restore(read(rank.parameters), snapshot)(name => snapshot.vector(name, length).map(ownedOf))
  }

  override def counts: Map[String, Seq[Long]] =
    if (rank.rank == 0) Map("passes" -> Seq(iterations.made), "sums" -> Seq(sums.made)) else Map.empty

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

/** Where the driver holds all vectors (topology `tree`), as MLlib's driver does: Breeze runs there alone. */
private final class LbfgsDriver(passes: DriverPasses) extends DriverSide with LbfgsPasses {
  private val (setup, weightsSeen) = (passes.setup, passes.weights.floats)
  private val iterations = new LbfgsIterations(setup.settings, read(weightsSeen), this)

  /** Numbers of messages: each pass has one of its own. */
  private var number = 0L

  def step(step: Long): Double = iterations.step()

  def pass(): LbfgsPass = {
    val loss = passes.pass(0, number)
    number += 1
    LbfgsPass(loss / setup.rowsOf(0), read(passes.gradient.floats), loss)
  }

  def place(x: Shard): Unit = {
    weightsSeen.put(0, x.values)
    passes.changed(number)
  }

  override def drain(): Unit = iterations.drain()
  def weights: Array[Float] = iterations.point.values.clone()

  def state: Seq[StateRange] = iterations.vectors.map { case (name, vector) =>
    StateRange(name, 0, vector.values.clone())
  } :+
    Lbfgs.iterations(iterations.iteration)

  def restore(snapshot: Snapshot): Unit = {
    val length = weightsSeen.capacity
    weightsSeen.put(0, snapshot.required("weights", length))
    passes.changed(number)
    iterations.restore(read(weightsSeen), snapshot)(name => snapshot.vector(name, length).map(whole))
  }

  override def counts: Map[String, Seq[Long]] = Map("passes" -> Seq(iterations.made))

  private def read(vector: FloatBuffer): Shard = {
    val values = new Array[Float](vector.capacity)
    vector.get(0, values)
    whole(values)
  }
  private def whole(values: Array[Float]): Shard = new Shard(values, own => own)
}
