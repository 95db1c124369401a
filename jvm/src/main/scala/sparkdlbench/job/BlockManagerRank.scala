package sparkdlbench.job

import org.apache.spark.TaskContext
import sparkdlbench.algorithm.Rounding
import sparkdlbench.codec.{Codec, SentVector}
import sparkdlbench.common.RunFailedException
import sparkdlbench.config.RunKeys
import sparkdlbench.metrics.Phase
import sparkdlbench.rank.{JobRank, OwnedShard, Placement, RankSide, Snapshot, StateRange}
import sparkdlbench.vector.{FlatBuffer, Slices}

import java.nio.{ByteBuffer, ByteOrder}
import java.util.concurrent.{Callable, ExecutionException, Future, TimeUnit, TimeoutException}

/**
 * One rank's side of the block-manager exchange: puts, fetches and removes slices, and owns slice `own.rank` of the
 * weights. Sums are made in rank order, in fp32. With a lossy codec the owner keeps its weights in fp32 apart, and computes
 * with the rounded ones that everybody sees.
 *
 * @param placements
 *   where every rank lives, by rank
 */
private[sparkdlbench] final class BlockManagerRank(own: JobRank, placements: IndexedSeq[Placement]) extends RankSide {
  private val size = placements.size
  private val rank = own.rank
  private val runId = own.setup.submitted.print
  private val blocks = own.blocks
  private val slices = Slices(own.parameters.length, size)
  private val codec = own.setup.codec
  private val weightCodec = own.setup.parameterCodec
  private val limit = own.setup.settings(RunKeys.sliceLimit)
  private val master = OwnedShard.copyOf(own.parameters.floatSlice(slices.from(rank), slices.until(rank)))
  private val shard =
    OwnedShard.apart(slices.from(rank), master, own.newOptimizer(slices.from(rank), slices.until(rank)))
  private val gradients = new SentVector(codec, own.gradients)
  private val weights = new SentVector(weightCodec, master)
  private val encodedGradient = new Staging(codec, (0 until size).map(slices.size))
  private val encodedWeights = new Staging(weightCodec, Seq(slices.size(rank)))
  private var computed = BlockManagerRank.NoStep
  private var loss = 0.0
  private var available = BlockManagerRank.NoStep
  private var updated = BlockManagerRank.NoStep
  private var live = List.empty[SliceBlock]
  private var encoded = BlockManagerRank.NoStep

  /** Brings the engine's parameters to those after `step`; nothing to do before the first. */
  def fetchWeights(step: Long): Unit = if (step != BlockManagerRank.NoStep) {
    forEachFetched(from =>
      pieces(SliceBlock.Weights, step, from, SliceBlock.Everyone, weightCodec, slices.size(from))
    ) { (from, offset, length, bytes) =>
      val target = own.parameters.floatSlice(slices.from(from) + offset, slices.from(from) + offset + length)
      own.timer.switch(Phase.Decode)
      weightCodec.decode(bytes, target)
    }
    removeOlder(SliceBlock.Gradient, step + 1)
  }

  /**
   * Makes this rank's gradient available, one slice for each owner; the sum of its rows' losses. A task that Spark repeats finds done what the
   * first one did: rows that were computed once more would count twice in running statistics.
   */
  def gradient(step: Long): Double = {
    if (computed != step) {
      loss = own.computeGradientInParts(step)
      computed = step
    }
    if (available != step) {
      putGradient(step)
      available = step
    }
    loss
  }

  private def putGradient(step: Long): Unit = {
    own.timer.switch(Phase.Send)
    if (codec.keepsResidual && encoded == step)
      throw new RunFailedException(
        s"Spark repeated the gradient task of rank $rank in step $step before it had ended, and codec ${codec.name} keeps what it did not send: encoding the step " +
          "once more would count that twice. Look for the first failure in the executor's log; with codec fp32 or bf16 a task may be repeated."
      )
    encoded = step
    encodedGradient.clear()
    for (to <- 0 until size)
      putPieces(SliceBlock.Gradient, step, to, gradients, slices.from(to), slices.until(to))
  }

  /** Sums the parts of this rank's slice, updates its weights and makes them available. A second call for a step changes nothing. */
  def update(step: Long): Unit = {
    if (updated != step) {
      own.timer.switch(Phase.Reduce)
      shard.begin()
      forEachFetched(from => pieces(SliceBlock.Gradient, step, from, rank, codec, slices.size(rank))) {
        (_, offset, length, bytes) =>
          own.timer.switch(Phase.Reduce)
          shard.add(codec, bytes, offset, offset + length)
      }
      own.timer.switch(Phase.Update)
      shard.update(step)
      updated = step
    }
    removeOlder(SliceBlock.Weights, step)
    encodedWeights.clear()
    putPieces(SliceBlock.Weights, step, SliceBlock.Everyone, weights, 0, master.length)
  }

  def ownedWeights: Array[Float] = shard.values

  def state: Seq[StateRange] = shard.state ++ JobResiduals.of(own, gradients)

  def restore(snapshot: Snapshot): Unit = {
    val vector = snapshot.vectors(own.parameters.length)
    own.parameters.floats.put(0, vector(OwnedShard.Weights))
    if (!weightCodec.lossless) Rounding.asSent(weightCodec, own.parameters)
    shard.restore(vector)
    JobResiduals.restore(own, snapshot, size, gradients)
  }

  /** Blocks that others may still ask for are gone with it. */
  override def close(): Unit = {
    live.foreach(block => blocks.remove(block.print))
    live = Nil
  }

  /**
   * Memory for the encoded pieces of one step. The blocks are this memory itself: Spark fetches them from it until the job
   * that reads them has ended, which is before the next step encodes anew.
   */
  private final class Staging(of: Codec, lengths: Seq[Int]) {
    private def bytesOf(values: Int) = (of.maxBytes(values) + 63) / 64 * 64
    private val memory =
      if (of.isRaw) null
      else {
        val pieceLengths = lengths.flatMap(length => pieces(SliceBlock.Gradient, 0, 0, 0, of, length).map(_.length))
        new FlatBuffer(Math.toIntExact(pieceLengths.map(bytesOf(_).toLong).sum / 4))
      }
    private var used = 0

    def clear(): Unit = used = 0

    def next(values: Int): ByteBuffer = {
      val from = used
      used += Math.toIntExact(bytesOf(values).toLong)
      memory.bytes.slice(from, used - from).order(ByteOrder.nativeOrder())
    }
  }

  /** The blocks of a slice of `length` values: (block, first value, values). */
  private def pieces(kind: String, step: Long, from: Int, to: Int, of: Codec, length: Int): Seq[Piece] = {
    val perPart = math.max(1L, limit.toLong * 1024 / of.maxBytes(1024)).min(math.max(1, length)).toInt
    (0 until length by perPart).zipWithIndex.map { case (first, part) =>
      Piece(SliceBlock(runId, kind, step, from, to, part), first, math.min(perPart, length - first))
    }
  }

  private def putPieces(kind: String, step: Long, to: Int, source: SentVector, from: Int, until: Int): Unit = {
    val staging = if (kind == SliceBlock.Gradient) encodedGradient else encodedWeights
    for (piece <- pieces(kind, step, rank, to, source.codec, until - from)) {
      if (!source.isRaw) own.timer.switch(Phase.Encode)
      val target = if (source.isRaw) null else staging.next(piece.length)
      val first = from + piece.first
      val bytes = source.encoded(first, first + piece.length, target)
      own.timer.switch(Phase.Send)
      live = piece.block :: live
      blocks.put(piece.block.print, bytes)
      count(to, bytes.remaining)
    }
  }

  private def count(to: Int, bytes: Int): Unit =
    (if (to == SliceBlock.Everyone) (0 until size).filter(_ != rank) else Seq(to).filter(_ != rank)).foreach {
      receiver =>
        val local = placements(receiver).executorId == placements(rank).executorId
        own.bytes.add(if (local) "in-process" else "block-manager", bytes.toLong)
    }

  /** Fetches the pieces of all ranks at once, hands them over in rank order, and fails when one is missing. */
  private def forEachFetched(piecesOf: Int => Seq[Piece])(use: (Int, Int, Int, ByteBuffer) => Unit): Unit = {
    own.timer.switch(Phase.Wait)
    val pending = for (from <- 0 until size; piece <- piecesOf(from)) yield (from, piece, request(from, piece))
    try
      pending.foreach { case (from, piece, future) =>
        own.timer.switch(Phase.Wait)
        val bytes = await(from, piece, future)
        use(from, piece.first, piece.length, bytes)
      }
    finally pending.foreach(_._3.cancel(true))
  }

  private def request(from: Int, piece: Piece): Future[Option[Array[ByteBuffer]]] = {
    val fetch: Callable[Option[Array[ByteBuffer]]] = () => blocks.fetch(piece.block.print)
    own.fetchers.submit(fetch)
  }

  private def await(from: Int, piece: Piece, future: Future[Option[Array[ByteBuffer]]]): ByteBuffer = {
    def failed(what: String, cause: Throwable) = throw new RunFailedException(
      s"Rank $rank on ${own.host} (executor ${own.executorId}) $what the ${piece.block.kind} slice ${piece.block.print} of rank $from, " +
        s"which executor ${placements(from).executorId} on ${placements(from).host} should hold. That executor was lost or is out of memory; see its log.",
      cause
    )
    try
      arrived(future) match {
        case Some(chunks) => BlockManagerRank.joined(chunks)
        case None => failed("did not find", null)
      }
    catch {
      case _: TimeoutException => failed(s"waited ${own.setup.timeoutMillis / 1000} s in vain for", null)
      case e: ExecutionException => failed("could not fetch", e.getCause)
    }
  }

  /** Looks up now and then: a rank whose job Spark has given up must not hold its slot until it has waited in vain. */
  private def arrived(future: Future[Option[Array[ByteBuffer]]]): Option[Array[ByteBuffer]] = {
    val end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(own.setup.timeoutMillis)
    while (!future.isDone && System.nanoTime() < end) {
      if (TaskContext.get() != null && TaskContext.get().isInterrupted())
        throw new RunFailedException(s"Rank $rank waits no longer: Spark has ended its task.")
      try { val _ = future.get(BlockManagerRank.LookMillis, TimeUnit.MILLISECONDS) }
      catch { case _: TimeoutException | _: ExecutionException => () }
    }
    if (future.isDone) future.get() else throw new TimeoutException
  }

  private def removeOlder(kind: String, before: Long): Unit = {
    own.timer.switch(Phase.Send)
    val (old, kept) = live.partition(block => block.kind == kind && block.step < before)
    old.foreach(block => blocks.remove(block.print))
    live = kept
  }
}

/** One block of a slice: values `first` until `first + length` of the slice. */
private final case class Piece(block: SliceBlock, first: Int, length: Int)

private[sparkdlbench] object BlockManagerRank {
  val NoStep: Long = -1L
  private val LookMillis = 200L

  private def joined(chunks: Array[ByteBuffer]): ByteBuffer = {
    val whole =
      if (chunks.length == 1) chunks.head.duplicate()
      else {
        val all = ByteBuffer.allocate(chunks.map(_.remaining).sum)
        chunks.foreach(chunk => all.put(chunk.duplicate()))
        all.flip()
        all
      }
    whole.order(ByteOrder.nativeOrder())
  }
}
