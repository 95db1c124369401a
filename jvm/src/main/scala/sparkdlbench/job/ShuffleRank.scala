package sparkdlbench.job

import org.apache.spark.sparkdlbench.RankShuffles
import sparkdlbench.codec.Codec
import sparkdlbench.config.RunKeys
import sparkdlbench.metrics.Phase
import sparkdlbench.optimizer.{Clipping, Optimizer}
import sparkdlbench.rank.{JobRank, Placement}
import sparkdlbench.vector.{FlatBuffer, FloatOps, Slices}

import java.nio.{ByteBuffer, ByteOrder}

/**
 * One rank's side of the shuffle exchange, kept in its executor between the stages. With two exchanges it owns slice
 * `state.rank` of the weights, with one exchange all of them. Sums are made in rank order, in fp32; what a rank sends itself
 * goes through the codec but not through the shuffle. A repeated task sends the same bytes again.
 *
 * @param placements
 *   where every rank lives, by rank
 */
private[sparkdlbench] final class ShuffleRank(state: JobRank, placements: IndexedSeq[Placement]) extends AutoCloseable {
  import ShuffleRank._

  private val size = placements.size
  private val rank = state.rank
  private val two = state.setup.settings(ShuffleTransport.exchanges) == ShuffleTransport.Two
  private val slices = Slices(state.parameters.length, size)
  private val codec = state.setup.codec
  private val weightCodec = state.setup.parameterCodec
  private val limit = state.setup.settings(RunKeys.sliceLimit)
  private val gradientPieces = VectorPiece.all(slices, codec, limit)
  private val weightPieces = VectorPiece.all(slices, weightCodec, limit)
  private val (ownedFrom, ownedUntil) =
    if (two) (slices.from(rank), slices.until(rank)) else (0, state.parameters.length)

  private val sum = new FlatBuffer(ownedUntil - ownedFrom)
  private val master = new FlatBuffer(ownedUntil - ownedFrom)
  FloatOps.copy(state.parameters.floatSlice(ownedFrom, ownedUntil), master.floats)
  private val optimizer = state.newOptimizer(ownedFrom, ownedUntil)
  private val residual = if (codec.keepsResidual) new FlatBuffer(state.parameters.length) else null
  private val scratch: ByteBuffer = Encoding.scratch(Seq(codec -> gradientPieces, weightCodec -> weightPieces))

  private var computed = NoStep
  private var updated = NoStep
  private var arrived = NoStep
  private var gradientRecords = IndexedSeq.empty[Array[Byte]]
  private var weightRecords = IndexedSeq.empty[(Int, Array[Byte])]

  /** Sum of the losses of this rank's rows in the last step. */
  var loss: Double = 0.0

  /** Brings the engine's parameters to those after `step`, with what that step's last shuffle sent here. */
  def takeIn(step: Long, input: Iterator[Array[Byte]]): Unit = if (step != NoStep && arrived != step) {
    if (two) receiveWeights(step, input)
    else {
      sumAndUpdate(step, input)
      FloatOps.copy(master.floats, state.parameters.floats)
    }
    arrived = step
  }

  /** This rank's gradient: with two exchanges each slice for its owner, with one everything for everybody. */
  def gradient(step: Long): Iterator[(Int, Array[Byte])] = {
    if (computed != step) {
      loss = state.computeGradient(step, (_, _) => ())
      gradientRecords = gradientPieces.indices.map { index =>
        val piece = gradientPieces(index)
        encode(codec, step, index, state.gradients, piece.from, piece.until, residual)
      }
      computed = step
      for (index <- gradientPieces.indices; to <- receivers(index)) count(to, gradientRecords(index))
    }
    gradientPieces.indices.iterator.flatMap(index => receivers(index).map(_ -> gradientRecords(index)))
  }

  /** Sums the parts of this rank's slice, updates its weights, and sends them to everybody. */
  def update(step: Long, input: Iterator[Array[Byte]]): Iterator[(Int, Array[Byte])] = {
    if (updated != step) {
      sumAndUpdate(step, input)
      weightRecords = weightPieces.indices.filter(weightPieces(_).slice == rank).map { index =>
        val piece = weightPieces(index)
        index -> encode(weightCodec, step, index, master, piece.from - ownedFrom, piece.until - ownedFrom, null)
      }
      for ((_, record) <- weightRecords; to <- others) count(to, record)
      state.timer.switch(Phase.Decode)
      weightRecords.foreach { case (index, record) => decodeWeights(index, record) }
    }
    weightRecords.iterator.flatMap { case (_, record) => others.iterator.map(_ -> record) }
  }

  def ownedWeights: Array[Float] = master.toArray

  override def close(): Unit = ()

  private def others: Seq[Int] = (0 until size).filter(_ != rank)

  private def receivers(piece: Int): Seq[Int] =
    if (two) Seq(gradientPieces(piece).slice).filter(_ != rank) else others

  private def sumAndUpdate(step: Long, input: Iterator[Array[Byte]]): Unit = if (updated != step) {
    state.timer.switch(Phase.Reduce)
    FloatOps.fill(sum.floats, 0f)
    val mine = gradientPieces.indices.filter(index => !two || gradientPieces(index).slice == rank)
    val ranks = 0 until size
    val parts = new InSenderOrder(_ => ranks, mine)((index, record) => {
      val piece = gradientPieces(index)
      codec.decodeAdd(ShuffleRecord.payload(record), sum.floatSlice(piece.from - ownedFrom, piece.until - ownedFrom))
    })
    mine.foreach(index => parts.add(step, gradientRecords(index)))
    receive(step, input, parts, "the gradient", Phase.Reduce)
    state.timer.switch(Phase.Update)
    if (two) optimizer.update(master.floats, sum.floats, step)
    else {
      Clipping.whole(state.setup.settings, sum.floats)
      Optimizer.updateWhole(optimizer, master.floats, sum.floats, state.setup.spec.layout.size, step)
    }
    updated = step
  }

  private def receiveWeights(step: Long, input: Iterator[Array[Byte]]): Unit = {
    val foreign = weightPieces.indices.filter(weightPieces(_).slice != rank)
    val arriving = new InSenderOrder(index => Vector(weightPieces(index).slice), foreign)(decodeWeights)
    receive(step, input, arriving, "the weights", Phase.Decode)
  }

  private def decodeWeights(index: Int, record: Array[Byte]): Unit = {
    val piece = weightPieces(index)
    weightCodec.decode(ShuffleRecord.payload(record), state.parameters.floatSlice(piece.from, piece.until))
  }

  private def receive(
      step: Long,
      input: Iterator[Array[Byte]],
      parts: InSenderOrder,
      what: String,
      busy: Int
  ): Unit = {
    state.timer.switch(Phase.Wait)
    while (input.hasNext) {
      val record = input.next()
      state.timer.switch(busy)
      parts.add(step, record)
      state.timer.switch(Phase.Wait)
    }
    parts.complete(s"Rank $rank on ${state.host} (executor ${state.executorId}) waited for $what of step $step")
  }

  private def encode(
      of: Codec,
      step: Long,
      piece: Int,
      source: FlatBuffer,
      from: Int,
      until: Int,
      left: FlatBuffer
  ): Array[Byte] = {
    state.timer.switch(Phase.Encode)
    Encoding.record(of, step, rank, piece, source, from, until, left, scratch)
  }

  private def count(to: Int, record: Array[Byte]): Unit =
    if (placements(to).executorId == placements(rank).executorId)
      state.bytes.add("in-process", (record.length - ShuffleRecord.HeaderBytes).toLong)
    else {
      state.bytes.add("shuffle", (record.length - ShuffleRecord.HeaderBytes).toLong)
      state.bytes.add("shuffle.framing", (ShuffleRecord.HeaderBytes + RankShuffles.Framing).toLong)
    }
}

private[sparkdlbench] object ShuffleRank {
  val NoStep: Long = -1L

  def of(state: JobRank): ShuffleRank = state.exchangeState match {
    case rank: ShuffleRank => rank
    case other => throw new IllegalStateException(s"rank ${state.rank} holds $other instead of its shuffle state")
  }
}

/** Values to records. */
private[sparkdlbench] object Encoding {

  /** Direct memory for the largest encoded piece; none where all codecs are raw. */
  def scratch(uses: Seq[(Codec, Seq[VectorPiece])]): ByteBuffer =
    ByteBuffer.allocateDirect(Math.toIntExact(scratchBytes(uses))).order(ByteOrder.nativeOrder())

  def scratchBytes(uses: Seq[(Codec, Seq[VectorPiece])]): Long = {
    val largest = uses.collect {
      case (codec, pieces) if !codec.isRaw => pieces.map(piece => codec.maxBytes(piece.length))
    }
    (0L +: largest.flatten).max
  }

  /** Values `from` until `until` of `source` as one record; the residual, where there is one, has the source's layout. */
  def record(
      codec: Codec,
      step: Long,
      sender: Int,
      piece: Int,
      source: FlatBuffer,
      from: Int,
      until: Int,
      residual: FlatBuffer,
      scratch: ByteBuffer
  ): Array[Byte] = {
    val bytes =
      if (codec.isRaw) source.byteSlice(from, until)
      else {
        val values = source.floatSlice(from, until)
        val target = scratch.duplicate().order(ByteOrder.nativeOrder())
        val written =
          if (residual != null) codec.encode(values, target, residual.floatSlice(from, until))
          else codec.encode(values, target)
        target.limit(written)
        target
      }
    val record = ShuffleRecord.allocate(step, sender, piece, bytes.remaining)
    bytes.get(record, ShuffleRecord.HeaderBytes, bytes.remaining)
    record
  }
}
