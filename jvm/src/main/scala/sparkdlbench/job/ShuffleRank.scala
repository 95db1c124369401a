package sparkdlbench.job

import org.apache.spark.sparkdlbench.RankShuffles
import sparkdlbench.algorithm.Rounding
import sparkdlbench.codec.{Codec, SentVector}
import sparkdlbench.config.RunKeys
import sparkdlbench.metrics.Phase
import sparkdlbench.rank.{JobRank, OwnedShard, Placement, RankSide, Snapshot, StateRange}
import sparkdlbench.vector.{FloatOps, Slices}

import java.nio.{ByteBuffer, ByteOrder}

/**
 * One rank's side of the shuffle exchange, kept in its executor between the stages. With two exchanges it owns slice
 * `own.rank` of the weights, with one exchange all of them. Sums are made in rank order, in fp32; what a rank sends itself
 * goes through the codec but not through the shuffle. A repeated task sends the same bytes again.
 *
 * @param placements
 *   where every rank lives, by rank
 */
private[sparkdlbench] final class ShuffleRank(own: JobRank, placements: IndexedSeq[Placement]) extends RankSide {
  import ShuffleRank._

  private val size = placements.size
  private val rank = own.rank
  private val two = own.setup.settings(ShuffleTransport.exchanges) == ShuffleTransport.Two
  private val slices = Slices(own.parameters.length, size)
  private val codec = own.setup.codec
  private val weightCodec = own.setup.parameterCodec
  private val limit = own.setup.settings(RunKeys.sliceLimit)
  private val gradientPieces = VectorPiece.all(slices, codec, limit)
  private val weightPieces = VectorPiece.all(slices, weightCodec, limit)
  private val (ownedFrom, ownedUntil) =
    if (two) (slices.from(rank), slices.until(rank)) else (0, own.parameters.length)

  private val master = OwnedShard.copyOf(own.parameters.floatSlice(ownedFrom, ownedUntil))
  private val shard = OwnedShard.apart(ownedFrom, master, own.newOptimizer(ownedFrom, ownedUntil))
  private val gradients = new SentVector(codec, own.gradients)
  private val weights = new SentVector(weightCodec, master)
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
      FloatOps.copy(shard.weights, own.parameters.floats)
    }
    arrived = step
  }

  /** This rank's gradient: with two exchanges each slice for its owner, with one everything for everybody. */
  def gradient(step: Long): Iterator[(Int, Array[Byte])] = {
    if (computed != step) {
      loss = own.computeGradientInParts(step)
      gradientRecords = gradientPieces.indices.map { index =>
        val piece = gradientPieces(index)
        encode(gradients, step, index, piece.from, piece.until)
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
        index -> encode(weights, step, index, piece.from - ownedFrom, piece.until - ownedFrom)
      }
      for ((_, record) <- weightRecords; to <- others) count(to, record)
      own.timer.switch(Phase.Decode)
      weightRecords.foreach { case (index, record) => decodeWeights(index, record) }
    }
    weightRecords.iterator.flatMap { case (_, record) => others.iterator.map(_ -> record) }
  }

  def ownedWeights: Array[Float] = shard.values

  /** With one exchange all ranks hold the same weights, and rank 0 answers for them. */
  def state: Seq[StateRange] =
    (if (two || rank == 0) shard.state else Nil) ++ JobResiduals.of(own, gradients)

  def restore(snapshot: Snapshot): Unit = {
    val vector = snapshot.vectors(own.parameters.length)
    own.parameters.floats.put(0, vector(OwnedShard.Weights))
    if (two && !weightCodec.lossless) Rounding.asSent(weightCodec, own.parameters)
    shard.restore(vector)
    JobResiduals.restore(own, snapshot, size, gradients)
  }

  private def others: Seq[Int] = (0 until size).filter(_ != rank)

  private def receivers(piece: Int): Seq[Int] =
    if (two) Seq(gradientPieces(piece).slice).filter(_ != rank) else others

  private def sumAndUpdate(step: Long, input: Iterator[Array[Byte]]): Unit = if (updated != step) {
    own.timer.switch(Phase.Reduce)
    shard.begin()
    val mine = gradientPieces.indices.filter(index => !two || gradientPieces(index).slice == rank)
    val ranks = 0 until size
    val parts = new InSenderOrder(_ => ranks, mine)((index, record) => {
      val piece = gradientPieces(index)
      shard.add(codec, ShuffleRecord.payload(record), piece.from - ownedFrom, piece.until - ownedFrom)
    })
    mine.foreach(index => parts.add(step, gradientRecords(index)))
    receive(step, input, parts, "the gradient", Phase.Reduce)
    own.timer.switch(Phase.Update)
    if (two) shard.update(step) else shard.updateWhole(own.setup.settings, own.setup.spec.layout.size, step)
    updated = step
  }

  private def receiveWeights(step: Long, input: Iterator[Array[Byte]]): Unit = {
    val foreign = weightPieces.indices.filter(weightPieces(_).slice != rank)
    val arriving = new InSenderOrder(index => Vector(weightPieces(index).slice), foreign)(decodeWeights)
    receive(step, input, arriving, "the weights", Phase.Decode)
  }

  private def decodeWeights(index: Int, record: Array[Byte]): Unit = {
    val piece = weightPieces(index)
    weightCodec.decode(ShuffleRecord.payload(record), own.parameters.floatSlice(piece.from, piece.until))
  }

  private def receive(
      step: Long,
      input: Iterator[Array[Byte]],
      parts: InSenderOrder,
      what: String,
      busy: Int
  ): Unit = {
    own.timer.switch(Phase.Wait)
    while (input.hasNext) {
      val record = input.next()
      own.timer.switch(busy)
      parts.add(step, record)
      own.timer.switch(Phase.Wait)
    }
    parts.complete(s"Rank $rank on ${own.host} (executor ${own.executorId}) waited for $what of step $step")
  }

  private def encode(vector: SentVector, step: Long, piece: Int, from: Int, until: Int): Array[Byte] = {
    own.timer.switch(Phase.Encode)
    Encoding.record(vector, step, rank, piece, from, until, scratch)
  }

  private def count(to: Int, record: Array[Byte]): Unit =
    if (placements(to).executorId == placements(rank).executorId)
      own.bytes.add("in-process", (record.length - ShuffleRecord.HeaderBytes).toLong)
    else {
      own.bytes.add("shuffle", (record.length - ShuffleRecord.HeaderBytes).toLong)
      own.bytes.add("shuffle.framing", (ShuffleRecord.HeaderBytes + RankShuffles.Framing).toLong)
    }
}

private[sparkdlbench] object ShuffleRank {
  val NoStep: Long = -1L
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

  /** Values `from` until `until` of a vector as one record. */
  def record(
      vector: SentVector,
      step: Long,
      sender: Int,
      piece: Int,
      from: Int,
      until: Int,
      scratch: ByteBuffer
  ): Array[Byte] = {
    val bytes = vector.encoded(from, until, scratch)
    val record = ShuffleRecord.allocate(step, sender, piece, bytes.remaining)
    bytes.get(record, ShuffleRecord.HeaderBytes, bytes.remaining)
    record
  }
}
