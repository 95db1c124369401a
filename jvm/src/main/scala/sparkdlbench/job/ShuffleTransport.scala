package sparkdlbench.job

import org.apache.spark.sparkdlbench.{RankShuffle, RankShuffles, StageWork}
import org.apache.spark.util.CollectionAccumulator
import sparkdlbench.codec.ChosenCodecs
import sparkdlbench.common.{MemoryKind, MemoryPart}
import sparkdlbench.config.{Key, RunKeys, Settings}
import sparkdlbench.metrics.Phase
import sparkdlbench.rank.{Exchange, ExchangeMemory, JobRank, JobRanks, KeptRanks, RunContext}
import sparkdlbench.topology.{JobTransport, Topology, Tree}
import sparkdlbench.transport.TransportVariant
import sparkdlbench.vector.Slices

/**
 * The second rung of the in-band ladder: the exchange as real Spark shuffles, through whichever `spark.shuffle.manager` the
 * session has, so that a faster shuffle makes training faster.
 *
 * `shuffle.exchanges = two` (reduce-scatter and all-gather): a step is one Spark job of two stages. Stage 1: every rank
 * takes in the weights that the last step's owners sent, computes its gradient, sends each owner its slice. Stage 2: the
 * owner sums in rank order, updates (optimiser state sharded at the owner), sends its slice of the weights to everybody.
 * 2(N-1)/N · S bytes a worker. `one` (all-gather of gradients): a step is one job of one stage, in which every rank sums the
 * whole gradients of the last step in rank order, updates all weights itself, computes and sends its whole gradient to
 * everybody. (N-1) · S bytes a worker.
 *
 * Staleness 0: a shuffle that ends a step is read by the first stage of the next one.
 */
final class ShuffleTransport extends TransportVariant with JobTransport {
  def name = "shuffle"
  def doc = "In-band: Spark shuffles through the session's spark.shuffle.manager; a Spark job per step"
  def inBand = true
  override def keys: Seq[Key[_]] = Seq(ShuffleTransport.exchanges)
  def topologies: Set[String] = Set("sliced", "tree")

  override def refuses(settings: Settings): Option[String] = {
    val codec = ChosenCodecs.gradient(settings)
    if (settings(RunKeys.topology) == "tree" && (codec.keepsResidual || codec.fixedBytes(1).isEmpty))
      Some(
        s"Topology tree sums gradients on the way to the driver and codec ${codec.name} leaves values out, which an aggregator " +
          "has no memory to make up for. Use codec fp32, bf16 or fp16 with it, or topology sliced."
      )
    else None
  }

  /** With one exchange every rank updates everything, with topology tree the driver does. */
  override def updatesWhole(settings: Settings): Boolean =
    settings(RunKeys.topology) == "tree" || settings(ShuffleTransport.exchanges) == ShuffleTransport.One

  def exchange(group: JobRanks, topology: Topology): Exchange = topology match {
    case _: Tree => new TreeExchange(group)
    case _ => new ShuffleExchange(group)
  }

  def memory(setup: RunContext, topology: Topology): ExchangeMemory = topology match {
    case _: Tree => TreeExchange.memory(setup)
    case _ => slicedMemory(setup)
  }

  /**
   * What a rank owns, summed and in full precision; its records, kept until the next step, for a task may be repeated; and at
   * times the most of: those of all others, where the first sender's come last; and its next gradient's, which are made while the last
   * one's are still kept.
   */
  private def slicedMemory(setup: RunContext): ExchangeMemory = {
    val two = setup.settings(ShuffleTransport.exchanges) == ShuffleTransport.Two
    val parameters = setup.spec.parameterCount
    val slices = Slices(parameters, setup.workers)
    val owned = if (two) slices.maxSize else parameters
    val limit = setup.settings(RunKeys.sliceLimit)
    val used = if (two) Seq(setup.codec, setup.parameterCodec) else Seq(setup.codec)
    val pieces = Seq(setup.codec, setup.parameterCodec).map(codec => codec -> VectorPiece.all(slices, codec, limit))
    val sent = used.zip(Seq(parameters, owned)).map { case (codec, values) => codec.maxBytes(values) }.sum
    val atTimes = Seq(
      (setup.workers - 1) * setup.codec.maxBytes(owned),
      setup.codec.maxBytes(parameters),
      if (two) setup.parameterCodec.maxBytes(parameters) else 0L
    ).max
    ExchangeMemory(
      Seq(
        MemoryPart("owned weights, summed and in full precision", MemoryKind.Direct, 8L * owned),
        MemoryPart("encoded values", MemoryKind.Direct, Encoding.scratchBytes(pieces)),
        ExchangeMemory.residual(setup),
        MemoryPart("records that are sent", MemoryKind.Heap, sent),
        MemoryPart("records that arrive before their turn, or are made next", MemoryKind.HeapAtTimes, atTimes),
        ExchangeMemory.optimizer(setup, owned)
      )
    )
  }
}

object ShuffleTransport {
  val Two = "two"
  val One = "one"
  val exchanges: Key[String] = Key.choice(
    "shuffle.exchanges",
    Two,
    Seq(Two, One),
    "Shuffles per step: two (gradient slices to owners, weights to all) or one (whole gradients to all, everybody updates everything)"
  )
}

private final class ShuffleExchange(group: JobRanks) extends Exchange {
  private val shuffles = new RankShuffles(group.sc)
  private val reports = StageReports(group.sc)
  private val ranks = group.kept
  private val two = group.setup.settings(ShuffleTransport.exchanges) == ShuffleTransport.Two

  /** Written by the last step, to be read by the next one. */
  private var carried: Option[RankShuffle] = None
  private var newest = ShuffleRank.NoStep

  {
    val placements = group.placements
    group.run(state => state.keep(new ShuffleRank(state, placements)))
  }

  def step(step: Long): Double = {
    val start = System.nanoTime()
    reports.reset()
    val gradients = plan(carried, GradientWork(ranks, step, newest, reports.sink))
    val last = if (two) plan(Some(gradients), UpdateWork(ranks, step, reports.sink)) else gradients
    val consumed = carried.toSeq ++ Seq(gradients).filter(_ ne last)
    try shuffles.write(last)
    catch { case cause: Throwable => (consumed :+ last).foreach(shuffles.remove); carried = None; throw cause }
    consumed.foreach(shuffles.remove)
    shuffles.cut(last)
    carried = Some(last)
    newest = step
    group.countJob(System.nanoTime() - start, reports.phases)
    reports.losses.sum
  }

  def synchronize(): Unit = if (carried.nonEmpty) {
    reports.reset()
    shuffles.collect(group.locations, carried, ArrivalWork(ranks, newest, reports.sink))
    carried.foreach(shuffles.remove)
    carried = None
  }

  /** With one exchange an update is made when the next step begins. */
  override def settle(): Unit = if (!two) synchronize()

  def weights(): Array[Float] = {
    synchronize()
    // With one exchange every rank has all of them; they come from one, for the driver need not have room for those of all.
    val sliced = two
    val owned =
      group.run(state => if (sliced || state.rank == 0) state.side[ShuffleRank].ownedWeights else Array.empty[Float])
    if (two) owned.toArray.flatten else owned.head
  }

  override def close(): Unit = {
    carried.foreach(shuffles.remove)
    carried = None
  }

  private def plan(input: Option[RankShuffle], work: StageWork): RankShuffle =
    shuffles.plan(group.locations, input, group.placements.size, work)
}

/** Work of a stage at the ranks: the rank's state found, its time and loss reported when the task ends. */
private trait RankStageWork extends StageWork {
  def ranks: KeptRanks
  def reports: CollectionAccumulator[StageReport]

  /** Number of the stage in its job. */
  def stage: Int
  protected def run(state: JobRank, input: Iterator[Array[Byte]]): Iterator[(Int, Array[Byte])]
  protected def loss(state: JobRank): Double = 0.0

  final def run(task: Int, input: Iterator[Array[Byte]]): Iterator[(Int, Array[Byte])] = {
    val state = ranks(task)
    state.timer.restart(Phase.Wait)
    StageReports.atTaskEnd(reports, StageReport(stage, task, loss(state), state.timer.take()))
    // A job that Spark has given up leaves its tasks running: nobody may close the state under them.
    val output = state.synchronized(run(state, input))
    state.timer.switch(Phase.Send) // Spark's shuffle writer drains the records
    output
  }
}

private final case class GradientWork(
    ranks: KeptRanks,
    step: Long,
    previous: Long,
    reports: CollectionAccumulator[StageReport]
) extends RankStageWork {
  def stage = 0
  protected def run(state: JobRank, input: Iterator[Array[Byte]]): Iterator[(Int, Array[Byte])] = {
    val rank = state.side[ShuffleRank]
    rank.takeIn(previous, input)
    rank.gradient(step)
  }
  override protected def loss(state: JobRank): Double = state.side[ShuffleRank].loss
}

private final case class UpdateWork(ranks: KeptRanks, step: Long, reports: CollectionAccumulator[StageReport])
    extends RankStageWork {
  def stage = 1
  protected def run(state: JobRank, input: Iterator[Array[Byte]]): Iterator[(Int, Array[Byte])] =
    state.side[ShuffleRank].update(step, input)
}

private final case class ArrivalWork(ranks: KeptRanks, step: Long, reports: CollectionAccumulator[StageReport])
    extends RankStageWork {
  def stage = 0
  protected def run(state: JobRank, input: Iterator[Array[Byte]]): Iterator[(Int, Array[Byte])] = {
    state.side[ShuffleRank].takeIn(step, input)
    Iterator.empty
  }
}
