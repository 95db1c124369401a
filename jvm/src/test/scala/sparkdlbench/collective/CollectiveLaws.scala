package sparkdlbench.collective

import sparkdlbench.common.{ConfigurationException, RunFailedException}
import sparkdlbench.topology.{Ps, Recursive, Ring, Sliced}
import sparkdlbench.transport.{InMemoryConditions, ThreadGroup, Transport}
import sparkdlbench.vector.{FlatBuffer, Slices}
import sparkdlbench.OnOneLine

import java.nio.{ByteBuffer, ByteOrder}

/** What holds for the operations of a group, whatever the number of ranks, the lengths and the order of arrival. */
class CollectiveLaws extends OnOneLine {
  private val sizes = 1 to 5
  // Of bytes and of wider types, on both sides of `Collective.ShortBytes`.
  private val lengths = Seq(0, 1, 3, 17, 1001, 2051)
  private val arrivals = Seq(InMemoryConditions(), InMemoryConditions(delaySeed = Some(5)))

  /** In pieces so small that streams need many, and the last is shorter. */
  private def run[T](size: Int, conditions: InMemoryConditions = InMemoryConditions())(body: Collective => T) =
    ThreadGroup.run(size, conditions)((transport: Transport) => body(Collective.open(transport, 64)))

  private def everywhere(body: Collective => Unit): Unit =
    for (conditions <- arrivals; size <- sizes) run(size, conditions)(body)

  test("all-reduce: every type, every reduction, exact") {
    everywhere { group =>
      for (elements <- ElementType.all; reduction <- Reduction.all if elements.allows(reduction); length <- lengths) {
        val data = values(elements, length, input(_, group.rank))
        group.allReduce(data, elements, reduction)
        assert(data.position() == 8 && data.remaining == length * elements.bytes)
        assert(
          read(elements, data) == (0 until length).map(expected(elements, reduction, _, group.size)),
          s"${elements.name} ${reduction.name} of $length by ${group.size}"
        )
      }
    }
  }

  test("vectors that were bound: every topology, as often as one likes, between other operations") {
    for (
      conditions <- arrivals; topology <- Seq(new Sliced, new Ring, new Ps); size <- sizes;
      length <- Seq(0, 1, 17, 1001)
    ) run(size, conditions) { group =>
      val vectors = Seq(length, length + 5).map(new FlatBuffer(_))
      val bound = vectors.map(group.bind(_, topology, bucketLength = 100))
      for (reduction <- Seq(Reduction.Sum, Reduction.Average, Reduction.Sum); (vector, reduced) <- vectors.zip(bound)) {
        (0 until vector.length).foreach(i => vector.floats.put(i, input(i, group.rank).toFloat))
        reduced.run(reduction)
        assert(
          vector.toArray.map(_.toDouble).toSeq ==
            (0 until vector.length).map(expected(ElementType.Float32, reduction, _, size)),
          s"${topology.name} ${reduction.name} of $length by $size"
        )
        val word = values(ElementType.Int32, 1, _ => group.rank + 1)
        group.allReduce(word, ElementType.Int32, Reduction.Sum)
        assert(read(ElementType.Int32, word) == Seq(size * (size + 1) / 2.0))
      }
    }
  }

  test("a vector may lie in memory that is this rank's choice, and changes from step to step") {
    for (
      topology <- Seq(new Sliced, new Ring, new Recursive);
      conditions <- Seq(InMemoryConditions(), InMemoryConditions(delaySeed = Some(3)));
      size <- Seq(1, 2, 3)
    ) run(size, conditions) { group =>
      val length = 203
      val places = IndexedSeq.fill(3)(new FlatBuffer(length))
      val bound = group.bind(places(0), topology, bucketLength = 100)
      assert((1 to 2).forall(place => bound.add(place, places(place))))
      for (step <- 0 until 9) {
        val place = if (step < 6) (step * (group.rank + 1)) % 3 else 2 * (step % 2)
        val others = places.indices.filter(_ != place)
        others.foreach(other => places(other).floats.put(0, -7f).put(length - 1, -7f))
        (0 until length).foreach(i => places(place).floats.put(i, input(i, group.rank).toFloat))
        bound.run(Reduction.Sum, place)
        val wanted = (0 until length).map(expected(ElementType.Float32, Reduction.Sum, _, size))
        assert(places(place).toArray.map(_.toDouble).toSeq == wanted, s"${topology.name}, step $step of $size")
        assert(
          others.forall(other => places(other).floats.get(0) == -7f && places(other).floats.get(length - 1) == -7f)
        )
        if (step == 5) bound.remove(1)
      }
      assert(bound.add(1, new FlatBuffer(length)))
      assert(!bound.add(4, new FlatBuffer(length + 1)), "another length")
    }
    run(2, InMemoryConditions(redirects = false)) { group =>
      val values = new FlatBuffer(203)
      val bound = group.bind(values, new Sliced, bucketLength = 100)
      assert(!bound.add(1, new FlatBuffer(203)))
      values.floats.put(0, 2f)
      bound.run(Reduction.Sum)
      assert(values.floats.get(0) == 4f)
    }
  }

  test("integers wrap around at their width, and unsigned bytes are unsigned") {
    for (elements <- ElementType.all if !elements.isFloatingPoint && elements != ElementType.Bool) run(3) { group =>
      val data = values(elements, 2, i => if (i == 0) 100 else if (group.rank == 1) -1 else 0)
      group.allReduce(data, elements, if (elements.bytes == 1) Reduction.Sum else Reduction.Product)
      val wanted = elements match {
        case ElementType.Int8 => 44.0
        case ElementType.UInt8 => 44.0
        case ElementType.Int16 => 1000000.toShort.toDouble
        case _ => 1000000.0
      }
      assert(read(elements, data).head == wanted, elements.name)
    }
    run(3) { group =>
      val data = values(ElementType.UInt8, 1, _ => if (group.rank == 1) 200 else 3)
      group.allReduce(data, ElementType.UInt8, Reduction.Max)
      assert(read(ElementType.UInt8, data) == Seq(200.0))
    }
  }

  test("a not-a-number of any rank is the smallest and the largest") {
    for (
      elements <- ElementType.all if elements.isFloatingPoint; reduction <- Seq(Reduction.Min, Reduction.Max);
      culprit <- 0 until 3
    ) run(3) { group =>
      val data = values(elements, 1, _ => if (group.rank == culprit) Double.NaN else 1)
      group.allReduce(data, elements, reduction)
      assert(read(elements, data).head.isNaN, elements.name)
    }
  }

  test(
    "every fp16 and bf16 value is kept by the way to fp32 and back, and what lies between two becomes the nearer, or the even one"
  ) {
    import SixteenBits._
    for (
      code <- 0 to 0xffff; (widen, narrow) <- Seq((halfToFloat _, floatToHalf _), (bfloatToFloat _, floatToBfloat _))
    ) {
      val value = widen(code.toShort)
      if (value.isNaN) assert(widen(narrow(value)).isNaN) else assert(narrow(value) == code.toShort)
      val next = widen((code + 1).toShort)
      if (!value.isNaN && !next.isNaN && !next.isInfinite && (code & 0x7fff) != 0x7fff) {
        val middle = ((value.toDouble + next) / 2).toFloat // exact in fp32
        assert(narrow(middle) == (if (code % 2 == 0) code else code + 1).toShort, s"between $value and $next")
        assert(narrow(Math.nextAfter(middle, value.toDouble)) == code.toShort)
        assert(narrow(Math.nextAfter(middle, next.toDouble)) == (code + 1).toShort)
      }
    }
    assert(halfToFloat(0x3c00) == 1f && halfToFloat(1) == Math.scalb(1f, -24) && halfToFloat(0x7bff) == 65504f)
    assert(halfToFloat(floatToHalf(65519.996f)) == 65504f && halfToFloat(floatToHalf(65520f)).isPosInfinity)
    assert(bfloatToFloat(0x3f80) == 1f && bfloatToFloat(floatToBfloat(Float.MaxValue)).isPosInfinity)
  }

  test("sums are formed in the order of ranks, so that all ranks and all runs have the same bits") {
    def fraction(i: Int, rank: Int): Float = 1f / (3 + i * 7 + rank * 31)
    for (size <- sizes) {
      val wanted = (0 until 97).map(i => (0 until size).map(fraction(i, _)).reduceLeft(_ + _).toDouble)
      for (seed <- 1L to 3L)
        run(size, InMemoryConditions(delaySeed = Some(seed))) { group =>
          val data = values(ElementType.Float32, 97, i => fraction(i, group.rank).toDouble)
          group.allReduce(data, ElementType.Float32, Reduction.Sum)
          assert(read(ElementType.Float32, data) == wanted, s"$size ranks, seed $seed")
        }
    }
  }

  test("reduce-scatter: parts of any length, into memory apart or in place") {
    everywhere { group =>
      for (inPlace <- Seq(false, true); unit <- Seq(0, 1, 41)) {
        def length(part: Int) = unit * (part % 3)
        val parts = (0 until group.size).map(part =>
          values(ElementType.Int32, length(part), i => 1000.0 * part + input(i, group.rank))
        )
        val mine = if (inPlace) parts(group.rank) else values(ElementType.Int32, length(group.rank), _ => -1)
        group.reduceScatter(parts, mine, ElementType.Int32, Reduction.Sum)
        val wanted = (0 until length(group.rank)).map(i =>
          1000.0 * group.rank * group.size + (0 until group.size).map(input(i, _)).sum
        )
        assert(read(ElementType.Int32, mine) == wanted)
      }
    }
  }

  test("all-gather: parts of any length, from memory apart or in place") {
    everywhere { group =>
      for (inPlace <- Seq(false, true); unit <- Seq(0, 1, 41)) {
        def wanted(part: Int) = (0 until unit * (part % 3)).map(input(_, part))
        val parts = (0 until group.size).map(part => values(ElementType.Float64, unit * (part % 3), _ => -1))
        val own = wanted(group.rank)
        val mine = if (inPlace) parts(group.rank) else values(ElementType.Float64, own.length, own)
        own.indices.foreach(i => if (inPlace) mine.putDouble(mine.position() + 8 * i, own(i)))
        group.allGather(mine, parts)
        assert(parts.map(read(ElementType.Float64, _)) == parts.indices.map(wanted))
      }
    }
  }

  test("all-to-all: every pair has its own length") {
    everywhere { group =>
      def wanted(from: Int, to: Int) = (0 until (from * 7 + to * 13) % 40).map(_ + 1000.0 * from + 100000.0 * to)
      val outgoing = (0 until group.size).map { to =>
        val data = wanted(group.rank, to)
        values(ElementType.Int64, data.length, data)
      }
      val incoming =
        (0 until group.size).map(from => values(ElementType.Int64, wanted(from, group.rank).length, _ => -1))
      group.allToAll(outgoing, incoming)
      assert(incoming.map(read(ElementType.Int64, _)) == incoming.indices.map(wanted(_, group.rank)))
    }
  }

  test("broadcast: from every root") {
    everywhere { group =>
      for (root <- 0 until group.size; length <- lengths) {
        val data = values(ElementType.Int16, length, i => if (group.rank == root) input(i, root) else -1)
        group.broadcast(data, root)
        assert(read(ElementType.Int16, data) == (0 until length).map(input(_, root)))
      }
    }
  }

  test("no rank leaves a barrier before the last has come") {
    for (size <- sizes; late <- 0 until size) {
      val came = new java.util.concurrent.atomic.AtomicInteger
      run(size) { group =>
        if (group.rank == late) Thread.sleep(5)
        came.incrementAndGet()
        group.barrier()
        assert(came.get == size)
      }
    }
  }

  test("send and receive: in order, between two ranks, and around a ring at once") {
    for (conditions <- arrivals; size <- 2 to 5) run(size, conditions) { group =>
      for (length <- lengths; round <- 0 until 3) {
        def sent(rank: Int) = values(ElementType.Int32, length, i => input(i, rank) + 100.0 * round)
        val got = values(ElementType.Int32, length, _ => -1)
        if (group.rank == 0) group.send(size - 1, sent(0))
        if (group.rank == size - 1) {
          group.receive(0, got)
          assert(read(ElementType.Int32, got) == read(ElementType.Int32, sent(0)))
        }
        val previous = (group.rank + size - 1) % size
        group.sendReceive((group.rank + 1) % size, sent(group.rank), previous, got)
        assert(read(ElementType.Int32, got) == read(ElementType.Int32, sent(previous)))
      }
    }
  }

  test("as many bytes as the documentation says") {
    for (size <- sizes; length <- lengths) {
      def sent(operation: (Collective, ByteBuffer) => Unit) = ThreadGroup.run(size) { transport =>
        operation(Collective.open(transport, 64), values(ElementType.Float32, length, _ => 1))
        transport.bytesSent.values.sum
      }
      val slices = Slices(length, size)
      val all = sent(_.allReduce(_, ElementType.Float32, Reduction.Sum))
      if (4 * length <= Collective.ShortBytes)
        assert(all == Seq.fill(size)(4L * length * (size - 1)), "B (N-1) per rank")
      else {
        assert(all == (0 until size).map(rank => 4L * (length - slices.size(rank) + (size - 1) * slices.size(rank))))
        assert(all.sum == 4L * 2 * length * (size - 1), "2 B (N-1)/N per rank")
      }
      assert(sent(_.broadcast(_, 0)).sum == 4L * length * (size - 1) + bytesToOwners(4 * length, size))
    }
  }

  test("ranks in different operations are told so") {
    val error = intercept[RunFailedException](run(2) { group =>
      group.broadcast(values(ElementType.Float32, if (group.rank == 0) 4 else 6, _ => 1), 0)
    })
    val messages = (error +: error.getSuppressed).map(_.getMessage).mkString
    assert(messages.contains("different lengths") && messages.contains("8 bytes") && messages.contains("12"), messages)
  }

  test("a rank that does not answer ends the wait of the others") {
    val error = intercept[RunFailedException](run(3, InMemoryConditions(timeoutMillis = 200)) { group =>
      if (group.rank != 1) group.barrier()
    })
    assert(error.getMessage.contains("in vain"))
  }

  test("what cannot be is refused before anything is sent") {
    run(2) { group =>
      def refused(words: String*)(body: => Unit): Unit = {
        val message = intercept[ConfigurationException](body).getMessage
        words.foreach(word => assert(message.contains(word), message))
      }
      val data = values(ElementType.Float32, 3, _ => 1)
      refused("int32", "fp32, fp64, fp16, bf16", "divide")(group.allReduce(data, ElementType.Int32, Reduction.Average))
      refused("bxor", "fp32", "int32", "bool")(group.allReduce(data, ElementType.Float32, Reduction.BitXor))
      refused("12 bytes", "fp64")(group.allReduce(data, ElementType.Float64, Reduction.Sum))
      refused("heap")(group.allReduce(ByteBuffer.allocate(4), ElementType.Float32, Reduction.Sum))
      refused("1 buffers", "2 ranks")(group.allGather(data, IndexedSeq(data)))
      refused("rank 2", "0 to 1")(group.broadcast(data, 2))
      refused("without " + group.rank)(group.send(group.rank, data))
      refused("12 bytes", "0 on the other")(group.allGather(data, IndexedSeq.fill(2)(ByteBuffer.allocateDirect(0))))
      group.barrier()
    }
  }

  /** What the scatter of a broadcast from rank 0 sends: the slices of the others. */
  private def bytesToOwners(bytes: Int, size: Int): Long = bytes.toLong - Slices(bytes, size).size(0)

  /** Small and positive: exact in every type and reduction. */
  private def input(i: Int, rank: Int): Double = (i * 5 + rank * 3) % 7 + 1.0

  private def expected(elements: ElementType, reduction: Reduction, i: Int, size: Int): Double = {
    val all = (0 until size).map(input(i, _)).map(value => if (elements == ElementType.Bool) value.toInt & 1 else value)
    val bits = all.map(_.toLong)
    val result = reduction match {
      case Reduction.BitAnd => bits.reduce(_ & _).toDouble
      case Reduction.BitOr => bits.reduce(_ | _).toDouble
      case Reduction.BitXor => bits.reduce(_ ^ _).toDouble
      case Reduction.Sum if elements == ElementType.Bool => all.max
      case Reduction.Sum => all.sum
      case Reduction.Product => all.product
      case Reduction.Min => all.min
      case Reduction.Max => all.max
      case Reduction.Average if elements != ElementType.Float64 => (all.sum.toFloat / size).toDouble
      case Reduction.Average => all.sum / size
    }
    elements match {
      case ElementType.Int8 => result.toInt.toByte.toDouble
      case ElementType.UInt8 => (result.toInt & 0xff).toDouble
      case ElementType.Float16 if reduction == Reduction.Product =>
        all.reduce((a, b) => SixteenBits.halfToFloat(SixteenBits.floatToHalf((a * b).toFloat)).toDouble)
      case ElementType.BFloat16 if reduction == Reduction.Product =>
        all.reduce((a, b) => SixteenBits.bfloatToFloat(SixteenBits.floatToBfloat((a * b).toFloat)).toDouble)
      case ElementType.Float16 => SixteenBits.halfToFloat(SixteenBits.floatToHalf(result.toFloat)).toDouble
      case ElementType.BFloat16 => SixteenBits.bfloatToFloat(SixteenBits.floatToBfloat(result.toFloat)).toDouble
      case _ => result
    }
  }

  /** Direct, and not from the start of its memory on. */
  private def values(elements: ElementType, length: Int, value: Int => Double): ByteBuffer = {
    val data = ByteBuffer.allocateDirect(8 + length * elements.bytes + 8).order(ByteOrder.nativeOrder())
    data.position(8)
    data.limit(8 + length * elements.bytes)
    for (i <- 0 until length) {
      val at = 8 + i * elements.bytes
      elements match {
        case ElementType.Float32 => data.putFloat(at, value(i).toFloat)
        case ElementType.Float64 => data.putDouble(at, value(i))
        case ElementType.Float16 => data.putShort(at, SixteenBits.floatToHalf(value(i).toFloat))
        case ElementType.BFloat16 => data.putShort(at, SixteenBits.floatToBfloat(value(i).toFloat))
        case ElementType.Bool => data.put(at, (value(i).toInt & 1).toByte)
        case ElementType.Int8 | ElementType.UInt8 => data.put(at, value(i).toInt.toByte)
        case ElementType.Int16 => data.putShort(at, value(i).toInt.toShort)
        case ElementType.Int32 => data.putInt(at, value(i).toInt)
        case ElementType.Int64 => data.putLong(at, value(i).toLong)
      }
    }
    data
  }

  private def read(elements: ElementType, data: ByteBuffer): IndexedSeq[Double] =
    (data.position() until data.limit() by elements.bytes).map { at =>
      elements match {
        case ElementType.Float32 => data.getFloat(at).toDouble
        case ElementType.Float64 => data.getDouble(at)
        case ElementType.Float16 => SixteenBits.halfToFloat(data.getShort(at)).toDouble
        case ElementType.BFloat16 => SixteenBits.bfloatToFloat(data.getShort(at)).toDouble
        case ElementType.Bool => data.get(at).toDouble
        case ElementType.Int8 => data.get(at).toDouble
        case ElementType.UInt8 => (data.get(at) & 0xff).toDouble
        case ElementType.Int16 => data.getShort(at).toDouble
        case ElementType.Int32 => data.getInt(at).toDouble
        case ElementType.Int64 => data.getLong(at).toDouble
      }
    }
}
