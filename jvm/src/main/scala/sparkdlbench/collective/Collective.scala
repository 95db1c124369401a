package sparkdlbench.collective

import sparkdlbench.codec.Fp32
import sparkdlbench.common.ConfigurationException
import sparkdlbench.topology.Topology
import sparkdlbench.transport.Transport
import sparkdlbench.vector.{FlatBuffer, Slices}

import java.nio.{ByteBuffer, ByteOrder}

/**
 * The operations of a process group, for a rank that holds a transport and nothing else. Every rank calls the same operations in the same
 * order, with the same lengths, reductions and types, from one thread. Each returns when its result is there and its memory may be
 * changed. Waits are bounded by the transport's timeout; after a failure the group cannot be used any more.
 *
 * Data are the remaining bytes of direct buffers, in native order; positions and limits are left as they are. B stands for their number,
 * N for the ranks. Bytes sent per rank are payload, without the empty messages that tell a sender of room.
 *
 * The result of a reduction has the same bits on all ranks and in all runs: values are combined in the order of ranks.
 */
final class Collective private (transport: Transport, links: Links, short: ShortExchange) {
  private var scratch = ByteBuffer.allocateDirect(0)
  private val word = ByteBuffer.allocateDirect(1)
  def rank: Int = transport.rank
  def size: Int = transport.size

  /**
   * Every rank's `data` becomes the reduction of all, directly between all ranks. Up to `Collective.ShortBytes` in one step, since latency
   * is all that counts there: every rank gets all values and reduces them itself, B (N-1) bytes per rank. Longer ones by reduce-scatter,
   * then all-gather: two steps, 2 B (N-1)/N bytes per rank.
   */
  def allReduce(data: ByteBuffer, elements: ElementType, reduction: Reduction): Unit =
    if (data.remaining <= Collective.ShortBytes) allReduceShort(whole(data, elements), elements, reduction)
    else {
      val parts = slices(whole(data, elements), elements)
      reduceScatter(parts, parts(rank), elements, reduction)
      allGather(parts(rank), parts)
    }

  private def allReduceShort(data: ByteBuffer, elements: ElementType, reduction: Reduction): Unit = {
    defined(elements, reduction)
    val sum = scratchOf(data.remaining)
    var isFirst = true
    short.exchange(data) { (_, values) =>
      if (isFirst) { Links.view(sum).put(Links.view(values)): Unit }
      else elements.combine(reduction, Links.view(sum), values)
      isFirst = false
    }
    if (reduction == Reduction.Average) elements.divide(Links.view(sum), size)
    copy(sum, data)
  }

  /**
   * Prepares all-reduces of one vector of fp32 values that is reduced again and again; a collective call. They go by a topology, and results
   * arrive where they are wanted.
   *
   * @param bucketLength
   *   values that travel as one message
   */
  def bind(values: FlatBuffer, topology: Topology, bucketLength: Int): VectorAllReduce = {
    val raw = new Fp32
    new VectorAllReduce(topology.bind(transport, values, values, bucketLength, raw, raw), values, size)
  }

  /**
   * `mine` becomes the reduction of every rank's `parts(rank)`; it may be that memory. One step, B (N-1)/N bytes per rank, B being those of
   * all parts. Part p has as many bytes on all ranks.
   */
  def reduceScatter(
      parts: IndexedSeq[ByteBuffer],
      mine: ByteBuffer,
      elements: ElementType,
      reduction: Reduction
  ): Unit = {
    onePerRank(parts, "parts")
    parts.foreach(whole(_, elements))
    same(mine, parts(rank))
    // a + own is own + a; with more in front of them own values must wait for their place.
    reduceScatter(parts, mine, elements, reduction, inPlace = rank < 2)
  }

  /**
   * @param inPlace
   *   whether `mine` may be changed while others' values arrive
   */
  private def reduceScatter(
      parts: IndexedSeq[ByteBuffer],
      mine: ByteBuffer,
      elements: ElementType,
      reduction: Reduction,
      inPlace: Boolean
  ): Unit = {
    defined(elements, reduction)
    val sum = if (inPlace) mine else scratchOf(mine.remaining)
    if (inPlace) copy(parts(rank), mine)
    def add(from: Int, offset: Int, piece: ByteBuffer): Unit = {
      val into = Links.part(sum, offset, piece.remaining)
      if (from == 0 && !inPlace) into.put(piece) else elements.combine(reduction, into, piece)
    }
    def deliver(from: Int)(offset: Int, piece: ByteBuffer): Unit = {
      if (from == rank + 1 && !inPlace) add(rank, offset, Links.part(parts(rank), offset, piece.remaining))
      add(from, offset, piece)
    }
    links.exchange(
      others.map(to => new Outgoing(to, parts(to))),
      others.map(from => new Incoming(from, mine.remaining, deliver(from))),
      inOrder = true
    )
    if (rank == size - 1 && !inPlace) add(rank, 0, Links.view(parts(rank)))
    if (reduction == Reduction.Average) elements.divide(Links.view(sum), size)
    copy(sum, mine)
  }

  /**
   * `parts(r)` becomes rank r's `mine` on all ranks; `mine` may be the memory of `parts(rank)`. Parts may differ in length, in the same way
   * on all ranks. One step, N-1 times `mine` per rank.
   */
  def allGather(mine: ByteBuffer, parts: IndexedSeq[ByteBuffer]): Unit = {
    onePerRank(parts, "parts")
    same(mine, parts(rank))
    direct(mine)
    links.exchange(others.map(to => new Outgoing(to, mine)), others.map(from => into(from, parts(from))))
    copy(mine, parts(rank))
  }

  /**
   * `incoming(r)` becomes rank r's `outgoing(rank)`. Lengths may be any, equal on both ends, the two lists' memory apart. One step, all of
   * `outgoing` but its own part per rank.
   */
  def allToAll(outgoing: IndexedSeq[ByteBuffer], incoming: IndexedSeq[ByteBuffer]): Unit = {
    onePerRank(outgoing, "outgoing")
    onePerRank(incoming, "incoming")
    same(outgoing(rank), incoming(rank))
    outgoing.foreach(direct)
    links.exchange(others.map(to => new Outgoing(to, outgoing(to))), others.map(from => into(from, incoming(from))))
    copy(outgoing(rank), incoming(rank))
  }

  /**
   * Every rank's `data` becomes the root's: the root scatters slices, all ranks gather them. Two steps, up to 2 B (N-1)/N bytes for the
   * root and B (N-1)/N for the others.
   */
  def broadcast(data: ByteBuffer, root: Int): Unit = {
    other(root, "broadcasts from", mayBeSelf = true)
    direct(data)
    val slices = Slices(data.remaining, size)
    val parts = (0 until size).map(part => Links.part(data, slices.from(part), slices.size(part)))
    if (rank == root) links.exchange(others.map(to => new Outgoing(to, parts(to))), Nil)
    else links.exchange(Nil, Seq(into(root, parts(rank))))
    allGather(parts(rank), parts)
  }

  /** Returns when all ranks have called it. As many steps of one byte as N has bits: each rank tells those 1, 2, 4, … after it. */
  def barrier(): Unit =
    Iterator.iterate(1)(_ * 2).takeWhile(_ < size).foreach { distance =>
      val next = (rank + distance) % size
      val previous = (rank - distance + size) % size
      links.exchange(Seq(new Outgoing(next, word)), Seq(new Incoming(previous, 1, (_, _) => ())))
    }

  /** To a rank that receives as many bytes; may wait until it does. */
  def send(to: Int, data: ByteBuffer): Unit = {
    other(to, "sends to")
    direct(data)
    links.exchange(Seq(new Outgoing(to, data)), Nil)
  }

  /** Fills `data` with what `from` sends next to this rank. */
  def receive(from: Int, data: ByteBuffer): Unit = {
    other(from, "receives from")
    links.exchange(Nil, Seq(into(from, data)))
  }

  /** `send` and `receive` at once, as ranks need that send to each other, or around a ring. The memory is apart. */
  def sendReceive(to: Int, outgoing: ByteBuffer, from: Int, incoming: ByteBuffer): Unit = {
    other(to, "sends to")
    other(from, "receives from")
    direct(outgoing)
    links.exchange(Seq(new Outgoing(to, outgoing)), Seq(into(from, incoming)))
  }

  private def defined(elements: ElementType, reduction: Reduction): Unit = if (!elements.allows(reduction)) {
    val valid = ElementType.all.filter(_.allows(reduction)).map(_.name).mkString(", ")
    val remedy =
      if (reduction == Reduction.Average) "Reduce with sum, and divide as you need it."
      else "Reduce integers with it, or use another reduction."
    throw new ConfigurationException(
      s"The reduction ${reduction.name} is not defined for ${elements.name} values, only for $valid. $remedy"
    )
  }

  private def others: Seq[Int] = (0 until size).filter(_ != rank)

  private def into(from: Int, data: ByteBuffer): Incoming =
    new Incoming(from, data.remaining, (offset, piece) => Links.part(data, offset, piece.remaining).put(piece))

  /** Between memory that may be the same. */
  private def copy(from: ByteBuffer, to: ByteBuffer): Unit =
    if (from ne to) Links.view(to).put(Links.view(from)): Unit

  private def scratchOf(length: Int): ByteBuffer = {
    if (scratch.capacity < length) scratch = ByteBuffer.allocateDirect(length).order(ByteOrder.nativeOrder())
    scratch.clear()
    scratch.limit(length)
    scratch
  }

  /** One per rank, cut between values. */
  private def slices(data: ByteBuffer, elements: ElementType): IndexedSeq[ByteBuffer] = {
    val slices = Slices(data.remaining / elements.bytes, size)
    (0 until size).map(part => Links.part(data, slices.from(part) * elements.bytes, slices.size(part) * elements.bytes))
  }

  private def whole(data: ByteBuffer, elements: ElementType): ByteBuffer = {
    direct(data)
    if (data.remaining % elements.bytes != 0)
      throw new ConfigurationException(
        s"${data.remaining} bytes are not a whole number of ${elements.name} values, which have ${elements.bytes} bytes each. Set position and " +
          "limit around the values."
      )
    data
  }

  private def direct(data: ByteBuffer): Unit =
    if (!data.isDirect)
      throw new ConfigurationException(
        s"A buffer of ${data.remaining} bytes is on the heap; transports send from direct memory. Make it with ByteBuffer.allocateDirect."
      )

  private def onePerRank(buffers: IndexedSeq[ByteBuffer], what: String): Unit =
    if (buffers.length != size)
      throw new ConfigurationException(
        s"$what has ${buffers.length} buffers, but the group has $size ranks. Give one buffer per rank, an empty one where there is nothing."
      )

  private def same(mine: ByteBuffer, part: ByteBuffer): Unit =
    if (mine.remaining != part.remaining)
      throw new ConfigurationException(
        s"Rank $rank's own part has ${mine.remaining} bytes on one side and ${part.remaining} on the other. Give both the same length."
      )

  private def other(peer: Int, does: String, mayBeSelf: Boolean = false): Unit =
    if (peer < 0 || peer >= size || (peer == rank && !mayBeSelf)) {
      val valid = if (mayBeSelf) s"0 to ${size - 1}" else s"0 to ${size - 1} without $rank"
      throw new ConfigurationException(
        s"Rank $rank $does rank $peer, which it cannot in a group of $size. Valid are $valid. Give one of those."
      )
    }
}

object Collective {
  val DefaultPieceBytes: Int = 256 * 1024

  /** Of the longest vector that each rank reduces whole. */
  val ShortBytes: Int = 2048

  /**
   * Opens lanes of its own, beside whatever else the transport carries for this thread; a collective call. The transport
   * stays the caller's to close.
   *
   * @param pieceBytes
   *   of the longest message, a multiple of 8, the same on all ranks; each rank has two of them for every other rank
   */
  def open(transport: Transport, pieceBytes: Int = DefaultPieceBytes): Collective =
    new Collective(transport, new Links(transport, pieceBytes), new ShortExchange(transport, ShortBytes))
}
