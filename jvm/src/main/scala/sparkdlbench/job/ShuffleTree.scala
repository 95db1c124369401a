package sparkdlbench.job

import org.apache.spark.broadcast.Broadcast
import org.apache.spark.sparkdlbench.{RankShuffles, StageWork}
import org.apache.spark.util.CollectionAccumulator
import sparkdlbench.algorithm.{Algorithm, DriverPasses}
import sparkdlbench.codec.{ChosenCodecs, Codec, SentVector}
import sparkdlbench.common.{MemoryKind, MemoryPart}
import sparkdlbench.config.{RunKeys, Settings, Variants}
import sparkdlbench.metrics.{ByteCounter, Phase, PhaseTimer}
import sparkdlbench.rank.{
  Exchange,
  ExchangeMemory,
  JobRank,
  JobRanks,
  KeptRanks,
  RankSide,
  RunContext,
  Snapshot,
  StateRange
}
import sparkdlbench.topology.Tree
import sparkdlbench.vector.{FlatBuffer, FloatOps, Slices}

import java.nio.{ByteBuffer, FloatBuffer}

/**
 * Topology `tree` over Spark shuffles, a job per step: every rank takes the weights from the broadcast, computes its gradient and
 * sends it to its aggregator; level by level the aggregators (tasks anywhere) sum and send on; the driver sums what the last
 * level returns as task results, and the algorithm's side there changes the weights, which are broadcast for the next job. `lbfgs` may make
 * several jobs a step.
 */
private[sparkdlbench] final class TreeExchange(group: JobRanks) extends Exchange {
  private val setup = group.setup
  private val shuffles = new RankShuffles(group.sc)
  private val reports = StageReports(group.sc)
  private val pieces = new TreePieces(setup.settings, setup.spec.parameterCount)
  private val levels = Tree.levels(setup.workers, setup.settings(Tree.depth))
  private val timer = new PhaseTimer
  private val bytes = new ByteCounter
  private val executors = group.placements.map(_.executorId).distinct.count(_ != TreeExchange.DriverId)

  private val master = new FlatBuffer(setup.spec.parameterCount)
  private val sum = new FlatBuffer(master.length)
  setup.startFrom(master)
  private val weightsSent = new SentVector(pieces.weightCodec, master)
  private val algorithm = Variants.find[Algorithm]("algorithm", setup.settings(RunKeys.algorithm)).atDriver(Passes)

  /** The weights that the ranks do not have yet. */
  private var broadcast: Option[Broadcast[Array[Array[Byte]]]] = None

  group.run(state => state.keep(new TreeRank(state)))

  def step(step: Long): Double = {
    timer.restart(Phase.Update)
    val loss = algorithm.step(step)
    group.countJob(0, Nil, Seq(Seq(timer.take())))
    loss
  }

  private object Passes extends DriverPasses {
    def setup: RunContext = group.setup
    def weights: FlatBuffer = master
    def gradient: FlatBuffer = sum

    def pass(step: Long, number: Long): Double = {
      group.countJob(0, Nil, Seq(Seq(timer.take())))
      val start = System.nanoTime()
      reports.reset()
      val results = runTree(step, number)
      drop()
      timer.restart(Phase.Reduce)
      sumUp(number, results)
      reports.all.foreach(_.bytes.foreach { case (channel, count) => bytes.add(channel, count) })
      val (leaves, above) = reports.phases.splitAt(1) // aggregators are no rank's tasks
      group.countJob(System.nanoTime() - start, leaves, above :+ Seq(timer.take()))
      timer.restart(Phase.Update)
      reports.losses.sum
    }

    def changed(number: Long): Unit = {
      timer.switch(Phase.Encode)
      publish(number)
      timer.switch(Phase.Update)
    }
  }

  def synchronize(): Unit = {
    algorithm.drain()
    broadcast.foreach(sent => group.run(state => state.side[TreeRank].takeIn(sent)))
    drop()
  }

  def weights(): Array[Float] = algorithm.weights
  override def isAtDriver: Boolean = true
  override def state: Seq[StateRange] = algorithm.state
  override def restore(snapshot: Snapshot): Unit = algorithm.restore(snapshot)
  override def counts: Map[String, Seq[Long]] = algorithm.counts
  override def unrankedBytes: Map[String, Long] = bytes.toMap
  override def close(): Unit = drop()

  /** The records that reach the driver. */
  private def runTree(step: Long, number: Long): Seq[Array[Byte]] = {
    val leaves = TreeGradientWork(group.kept, step, number, broadcast, levels.headOption.getOrElse(0), reports.sink)
    if (levels.isEmpty) shuffles.collect(group.locations, None, leaves).flatten.map(_._2)
    else {
      val first = shuffles.plan(group.locations, None, levels.head, leaves)
      // The last level does not write a shuffle: its tasks' results are the driver's.
      val planned = levels.zip(levels.tail).zipWithIndex.scanLeft(first) { case (below, ((count, above), index)) =>
        shuffles.plan(TreeExchange.anywhere(count), Some(below), above, sums(number, index, count, above))
      }
      val top = sums(number, levels.size - 1, levels.last, 0)
      try shuffles.collect(TreeExchange.anywhere(levels.last), Some(planned.last), top).flatten.map(_._2)
      finally planned.foreach(shuffles.remove)
    }
  }

  private def sums(number: Long, level: Int, count: Int, above: Int): TreeSumWork = {
    val children = if (level == 0) setup.workers else levels(level - 1)
    TreeSumWork(setup.settings, master.length, number, level + 1, children, count, above, reports.sink)
  }

  private def sumUp(number: Long, results: Seq[Array[Byte]]): Unit = {
    val children = levels.lastOption.getOrElse(setup.workers)
    pieces.sum(number, 0 until children, results.iterator, sum.floats)("The driver waited for the gradient")
  }

  private def publish(number: Long): Unit = {
    val encoded = pieces.encodeWeights(number, weightsSent)
    timer.switch(Phase.Send)
    drop() // what nobody has read
    broadcast = Some(group.sc.broadcast(encoded))
    val size = encoded.map(record => (record.length - ShuffleRecord.HeaderBytes).toLong).sum
    if (executors > 0) bytes.add("broadcast", size * executors)
    if (executors < group.placements.map(_.executorId).distinct.size) bytes.add("in-process", size)
  }

  private def drop(): Unit = {
    broadcast.foreach(_.destroy())
    broadcast = None
  }
}

private[sparkdlbench] object TreeExchange {

  /** Spark's name of the executor inside a local master's driver. */
  val DriverId = "driver"
  def anywhere(tasks: Int): Seq[Seq[String]] = Seq.fill(tasks)(Nil)

  /**
   * An aggregator runs where a rank has just been: its sum, what it sends, and children's records that arrive before their turn. Where no
   * aggregator is between the ranks and the driver, a rank's records are its task's result: Spark has them once more as the result's bytes, and
   * again within the task's (an aggregator's own are no more than the children's that it has done with then). The driver holds what reaches it,
   * the sum and the weights, and updates all of them.
   */
  def memory(setup: RunContext): ExchangeMemory = {
    val parameters = setup.spec.parameterCount
    val scratch = new TreePieces(setup.settings, parameters).scratchBytes
    val levels = Tree.levels(setup.workers, setup.settings(Tree.depth))
    val algorithm = Variants.find[Algorithm]("algorithm", setup.settings(RunKeys.algorithm))
    val (gradient, weights) = (setup.codec.maxBytes(parameters), setup.parameterCodec.maxBytes(parameters))
    val children = (setup.workers +: levels).zip(levels).map { case (below, count) => (below + count - 1) / count }
    val atTimes = (2L +: children.map(_ + 1L)).max * gradient
    val reaching = levels.lastOption.getOrElse(setup.workers) * gradient
    ExchangeMemory(
      worker = Seq(
        MemoryPart("encoded values", MemoryKind.Direct, scratch),
        MemoryPart("an aggregator's sum", MemoryKind.Direct, if (levels.isEmpty) 0 else 4L * parameters + scratch),
        MemoryPart("records that are sent", MemoryKind.Heap, gradient),
        MemoryPart("records of an aggregator, or on their way to the driver", MemoryKind.HeapAtTimes, atTimes)
      ),
      executor = Seq(MemoryPart("weights as they are broadcast, stored and read", MemoryKind.Heap, 2 * weights)),
      driver = Seq(
        MemoryPart("weights and their gradient", MemoryKind.Direct, 8L * parameters + scratch),
        ExchangeMemory.optimizer(setup, parameters),
        MemoryPart("the algorithm's vectors", MemoryKind.Heap, algorithm.driverHeap(setup)),
        MemoryPart("gradients that reach the driver, as they arrive and read", MemoryKind.Heap, 2 * reaching),
        MemoryPart("weights as they are broadcast, encoded and stored", MemoryKind.Heap, 2 * weights)
      ),
      result = reaching
    )
  }
}

/** How gradients and weights are cut up and travel in the tree. */
private[sparkdlbench] final class TreePieces(settings: Settings, length: Int) {
  private val whole = Slices(length, 1)
  val codec: Codec = ChosenCodecs.gradient(settings)
  val weightCodec: Codec = ChosenCodecs.parameters(settings)
  private val gradientPieces = VectorPiece.all(whole, codec, settings(RunKeys.sliceLimit))
  private val weightPieces = VectorPiece.all(whole, weightCodec, settings(RunKeys.sliceLimit))
  private val uses = Seq(codec -> gradientPieces, weightCodec -> weightPieces)
  private lazy val scratch: ByteBuffer = Encoding.scratch(uses)

  def scratchBytes: Long = Encoding.scratchBytes(uses)

  def encodeGradient(step: Long, sender: Int, gradient: SentVector): Array[Array[Byte]] =
    encode(gradientPieces, step, sender, gradient)

  def encodeWeights(step: Long, weights: SentVector): Array[Array[Byte]] = encode(weightPieces, step, 0, weights)

  def decodeWeights(records: Array[Array[Byte]], target: FlatBuffer): Unit = records.foreach { record =>
    val piece = weightPieces(ShuffleRecord.piece(record))
    weightCodec.decode(ShuffleRecord.payload(record), target.floatSlice(piece.from, piece.until))
  }

  /** target = the children's vectors, added in their order. */
  def sum(step: Long, children: IndexedSeq[Int], records: Iterator[Array[Byte]], target: FloatBuffer)(
      who: String
  ): Unit = {
    FloatOps.fill(target, 0f)
    val parts = new InSenderOrder(_ => children, gradientPieces.indices)((index, record) => {
      val piece = gradientPieces(index)
      codec.decodeAdd(ShuffleRecord.payload(record), target.slice(piece.from, piece.length))
    })
    records.foreach(parts.add(step, _))
    parts.complete(s"$who of step $step")
  }

  private def encode(pieces: IndexedSeq[VectorPiece], step: Long, sender: Int, source: SentVector) =
    pieces.indices.map { index =>
      Encoding.record(source, step, sender, index, pieces(index).from, pieces(index).until, scratch)
    }.toArray
}

/** One rank's side of the tree. */
private[sparkdlbench] final class TreeRank(own: JobRank) extends RankSide {
  private val pieces = new TreePieces(own.setup.settings, own.parameters.length)
  private val gradients = new SentVector(pieces.codec, own.gradients)
  private var computed = ShuffleRank.NoStep
  private var records = Array.empty[Array[Byte]]
  var loss: Double = 0.0

  /** The driver has all of it, and broadcasts the weights before the first step. */
  def state: Seq[StateRange] = Nil
  def restore(snapshot: Snapshot): Unit = ()

  def takeIn(weights: Broadcast[Array[Array[Byte]]]): Unit = {
    own.timer.switch(Phase.Wait)
    val arrived = weights.value
    own.timer.switch(Phase.Decode)
    pieces.decodeWeights(arrived, own.parameters)
  }

  /**
   * @param step
   *   whose rows
   * @param number
   *   of the pass: a task that is repeated sends the same again
   * @param aggregators
   *   on the level above; 0: the driver
   */
  def gradient(step: Long, number: Long, aggregators: Int): Iterator[(Int, Array[Byte])] = {
    if (computed != number) {
      loss = own.computeGradientInParts(step)
      own.timer.switch(Phase.Encode)
      records = pieces.encodeGradient(number, own.rank, gradients)
      computed = number
      TreeRank.sent(records, TreeRank.channel(aggregators, own.executorId)).foreach { case (channel, count) =>
        own.bytes.add(channel, count)
      }
    }
    val to = if (aggregators == 0) 0 else Tree.parent(own.rank, aggregators)
    records.iterator.map(to -> _)
  }
}

private[sparkdlbench] object TreeRank {

  /** Where a gradient goes; which executor an aggregator will run in nobody knows yet. */
  def channel(aggregators: Int, executorId: String): String =
    if (executorId == TreeExchange.DriverId) "in-process" else if (aggregators == 0) "task-result" else "shuffle"

  def sent(records: Array[Array[Byte]], channel: String): Map[String, Long] = {
    val payload = records.map(record => (record.length - ShuffleRecord.HeaderBytes).toLong).sum
    val framing = (ShuffleRecord.HeaderBytes + RankShuffles.Framing).toLong * records.length
    if (channel == "shuffle") Map(channel -> payload, "shuffle.framing" -> framing) else Map(channel -> payload)
  }
}

private final case class TreeGradientWork(
    ranks: KeptRanks,
    step: Long,
    number: Long,
    weights: Option[Broadcast[Array[Array[Byte]]]],
    aggregators: Int,
    reports: CollectionAccumulator[StageReport]
) extends RankStageWork {
  def stage = 0
  protected def run(state: JobRank, input: Iterator[Array[Byte]]): Iterator[(Int, Array[Byte])] = {
    val rank = state.side[TreeRank]
    weights.foreach(rank.takeIn)
    rank.gradient(step, number, aggregators)
  }
  override protected def loss(state: JobRank): Double = state.side[TreeRank].loss
}

/** An aggregator's work, in any executor. */
private final case class TreeSumWork(
    settings: Settings,
    length: Int,
    number: Long,
    stage: Int,
    children: Int,
    aggregators: Int,
    above: Int,
    reports: CollectionAccumulator[StageReport]
) extends StageWork {
  def run(task: Int, input: Iterator[Array[Byte]]): Iterator[(Int, Array[Byte])] = {
    val timer = new PhaseTimer
    timer.restart(Phase.Reduce)
    var sent = Map.empty[String, Long]
    StageReports.atTaskEnd(reports, StageReport(stage, task, 0.0, timer.take(), sent))
    val pieces = new TreePieces(settings, length)
    val sum = new FlatBuffer(length)
    val senders = Tree.children(task, aggregators, children)
    pieces.sum(number, senders, input, sum.floats)(
      s"Aggregator $task of level $stage of the tree waited for the gradient"
    )
    timer.switch(Phase.Encode)
    val records = pieces.encodeGradient(number, task, new SentVector(pieces.codec, sum))
    timer.switch(Phase.Send)
    sent = TreeRank.sent(records, TreeRank.channel(above, org.apache.spark.SparkEnv.get.executorId))
    val to = if (above == 0) 0 else Tree.parent(task, above)
    records.iterator.map(to -> _)
  }
}
