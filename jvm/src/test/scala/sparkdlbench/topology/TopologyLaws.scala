package sparkdlbench.topology

import sparkdlbench.codec.Codec
import sparkdlbench.common.ConfigurationException
import sparkdlbench.config.Variants
import sparkdlbench.transport.{InMemoryConditions, RankGroups, ThreadGroup, Transport}
import sparkdlbench.vector.FlatBuffer
import sparkdlbench.OnOneLine

import java.lang.Float.floatToRawIntBits
import java.nio.{ByteBuffer, ByteOrder}
import scala.util.Random

/** What holds for every topology with every codec, whatever the number of ranks, the length and the buckets. */
class TopologyLaws extends OnOneLine {
  private val topologies = Variants.all[Topology].filter(_.amongRanks)
  private val codecs = TestCodecs.all
  private val sizes = 1 to 5

  test("the topologies are found") {
    assert(topologies.map(_.name).toSet.intersect(Set("sliced", "ring", "recursive")).size == 3)
  }

  for (topology <- topologies) {
    test(s"${topology.name}: sums and parameters are exact, bytes as stated, ranges disjoint and covering") {
      for {
        size <- sizes
        (gradientCodec, parameterCodec) <- pairs(topology, size)
        (length, bucketLength) <- Seq((0, 5), (1, 1), (3, 8), (17, 3), (10007, 10007), (10007, 3000))
      } check(CollectiveCheck(topology, gradientCodec, parameterCodec, length, bucketLength, 10), size)
    }

    test(s"${topology.name}: a plain all-reduce in one buffer") {
      for {
        size <- sizes
        codec <- codecs if exact(codec) && topology.refuses(size, codec, codec).isEmpty
        (length, bucketLength) <- Seq((0, 1), (1, 4), (17, 3), (10007, 4000))
      } check(CollectiveCheck(topology, codec, codec, length, bucketLength, 10, inPlace = true), size)
    }

    test(s"${topology.name}: a million values") {
      val plain = TestCodecs.plain.head
      check(CollectiveCheck(topology, plain, plain, 1000003, 262144, 2), 4)
      check(CollectiveCheck(topology, plain, plain, 1000003, 2000000, 2), 3)
    }

    test(s"${topology.name}: late and reordered arrival, buffers read as late as can be") {
      ThreadGroup.together(1L to 3L) { seed =>
        for {
          size <- Seq(2, 3, 4, 5)
          (gradientCodec, parameterCodec) <- pairs(topology, size)
          inPlace <- Seq(false, true) if !inPlace || (gradientCodec eq parameterCodec)
        } check(
          CollectiveCheck(topology, gradientCodec, parameterCodec, 41, 14, 5, inPlace),
          size,
          InMemoryConditions(delaySeed = Some(seed))
        )
      }
    }

    test(s"${topology.name}: the same inputs give the same bits on all ranks, whatever the arrival") {
      for {
        size <- sizes
        codec <- codecs if topology.refuses(size, codec, TestCodecs.plain.head).isEmpty
        parameterCodec = if (codec.fixedBytes(1).isEmpty) TestCodecs.plain.head else codec
      } {
        val runs = (None +: (1L to 3L).map(Some(_))).map { seed =>
          ThreadGroup.run(size, InMemoryConditions(delaySeed = seed))(
            fractions(topology, codec, parameterCodec, 1009, 400)
          )
        }
        val label = s"${topology.name} ${codec.name} with $size ranks"
        runs.foreach(run => assert(run.forall(_ == run.head), s"$label: ranks differ"))
        assert(runs.forall(_.head == runs.head.head), s"$label: runs differ")
      }
    }

    test(s"${topology.name}: every rank's contribution is summed once, and every slice reaches every rank") {
      (1 to 33).foreach(size => checkSchedule(topology, size))
    }

    test(s"${topology.name}: what a codec leaves out is sent later, and the rest is in the residuals") {
      for (size <- sizes) {
        val steps = 6L
        val (sums, residuals) = ThreadGroup.run(size)(sumOverSteps(topology, _, 101, 40, steps)).unzip
        assert(residuals.forall(_.isDefined == size > 1))
        for (i <- 0 until 101) {
          val expected = (0L until steps).map(CollectiveCheck.sumOfInputs(size, _)(i)).sum
          assert(
            sums.map(_(i)).sum + residuals.flatten.map(_(i)).sum == expected,
            s"${topology.name} of $size, value $i"
          )
        }
        if (size > 1) assert(residuals.flatten.exists(_.exists(_ != 0f)))
      }
    }

    test(s"${topology.name}: codecs of varying size carry no parameters") {
      val sparse = codecs.find(_.name == "test-non-zeros").get
      val plain = TestCodecs.plain.head
      for (size <- sizes) {
        assert(topology.refuses(size, plain, sparse).exists(_.contains("test-non-zeros")))
        val error = intercept[ConfigurationException](
          ThreadGroup.run(size)(topology.bind(_, new FlatBuffer(4), new FlatBuffer(4), 4, plain, sparse))
        )
        assert(error.getMessage.contains("parameters"))
      }
    }
  }

  test("sliced sums in the order of ranks, whatever the codec") {
    for (size <- sizes; codec <- codecs if codec.lossless) {
      val bits = ThreadGroup.run(size)(fractions(new Sliced, codec, TestCodecs.plain.head, 257, 100)).head
      val vectors = (0 until size).map(fraction(_, 257))
      val expected = vectors.transpose.map(values => floatToRawIntBits(values.reduceLeft(_ + _)))
      assert(bits == expected, s"$size ranks, ${codec.name}")
    }
  }

  test("only sliced carries gradients of varying size") {
    val sparse = codecs.find(_.name == "test-non-zeros").get
    val plain = TestCodecs.plain.head
    assert((new Sliced).refuses(5, sparse, plain).isEmpty)
    assert((new Ring).refuses(5, sparse, plain).exists(_.contains("sliced")))
    assert((new Recursive).refuses(5, sparse, plain).exists(_.contains("sliced")))
    assert((new Sliced).bytesPerStep(0, RankGroups.alone(3), 100, 100, sparse, plain).total.isEmpty)
  }

  test("a lossless codec of 4 bytes a value is the values' own memory") {
    for (codec <- codecs if codec.lossless && codec.fixedBytes(1).contains(4L)) {
      val values = new FlatBuffer(5)
      (0 until 5).foreach(i => values.floats.put(i, 1.5f / (i - 2.25f)))
      val bytes = ByteBuffer.allocateDirect(20).order(ByteOrder.nativeOrder())
      codec.encode(values.floats, bytes)
      assert(bytes == values.bytes.duplicate(), codec.name)
    }
  }

  /** Codecs that carry small whole numbers exactly, for both directions, and mixed. */
  private def pairs(topology: Topology, size: Int): Seq[(Codec, Codec)] = {
    val plain = TestCodecs.plain.head
    val usable = codecs.filter(exact)
    (usable.map(codec => (codec, codec)) ++ usable.flatMap(codec => Seq((codec, plain), (plain, codec)))).distinct
      .filter { case (gradient, parameter) => topology.refuses(size, gradient, parameter).isEmpty }
  }

  private def exact(codec: Codec): Boolean = {
    val values = new FlatBuffer(257)
    (0 until 257).foreach(i => values.floats.put(i, i - 128f))
    val bytes = ByteBuffer.allocateDirect(codec.maxBytes(257).toInt).order(ByteOrder.nativeOrder())
    val decoded = new FlatBuffer(257)
    bytes.limit(codec.encode(values.floats, bytes))
    codec.decode(bytes, decoded.floats)
    decoded.floats == values.floats
  }

  private def check(check: CollectiveCheck, size: Int, conditions: InMemoryConditions = InMemoryConditions()): Unit = {
    val owned = ThreadGroup.run(size, conditions)(check.run)
    val covered = new Array[Int](check.length)
    owned.flatten.foreach { case (from, until) => (from until until).foreach(covered(_) += 1) }
    assert(covered.forall(_ == 1), s"${check.label}: $owned")
  }

  private def fraction(rank: Int, length: Int): IndexedSeq[Float] = {
    val random = new Random(rank)
    IndexedSeq.fill(length)((random.nextGaussian() * math.pow(10, random.nextInt(6) - 3.0)).toFloat)
  }

  /** Two steps on values whose sums depend on the order; the bits of the parameters after the second. */
  private def fractions(
      topology: Topology,
      gradientCodec: Codec,
      parameterCodec: Codec,
      length: Int,
      bucketLength: Int
  )(
      transport: Transport
  ): IndexedSeq[Int] = {
    val gradient = new FlatBuffer(length)
    val parameters = new FlatBuffer(length)
    val collective = topology.bind(transport, gradient, parameters, bucketLength, gradientCodec, parameterCodec)
    for (sequence <- 0L until 2L) {
      gradient.floats.put(0, fraction(transport.rank, length).toArray)
      (0 until collective.buckets).foreach(collective.contribute(_, sequence))
      (0 until collective.buckets).foreach { bucket =>
        collective.reduce(bucket, sequence)
        val (from, until) = collective.owned(bucket)
        (from until until).foreach(i => parameters.floats.put(i, gradient.floats.get(i)))
        collective.publish(bucket, sequence)
      }
      (0 until collective.buckets).foreach(collective.collect(_, sequence))
      collective.flush()
    }
    parameters.toArray.toIndexedSeq.map(value => floatToRawIntBits(value))
  }

  /** What this rank's owned sums are, added up over the steps (0 elsewhere), and its residual at the end. */
  private def sumOverSteps(topology: Topology, transport: Transport, length: Int, bucketLength: Int, steps: Long) = {
    val gradient = new FlatBuffer(length)
    val total = new Array[Float](length)
    val plain = TestCodecs.plain.head
    val collective =
      topology.bind(transport, gradient, new FlatBuffer(length), bucketLength, TestCodecs.Remainders, plain)
    for (sequence <- 0L until steps) {
      (0 until length).foreach(i => gradient.floats.put(i, CollectiveCheck.input(transport.rank, i, sequence)))
      (0 until collective.buckets).foreach(collective.contribute(_, sequence))
      (0 until collective.buckets).foreach { bucket =>
        collective.reduce(bucket, sequence)
        val (from, until) = collective.owned(bucket)
        (from until until).foreach(i => total(i) += gradient.floats.get(i))
        collective.publish(bucket, sequence)
      }
      (0 until collective.buckets).foreach(collective.collect(_, sequence))
      collective.flush()
    }
    (total, collective.residual.map(_.toArray))
  }

  /** Goes through the rounds with sets of ranks in place of sums. */
  private def checkSchedule(topology: Topology, size: Int): Unit = topology match {
    case scheduled: Scheduled =>
      val schedule = scheduled.schedule(size)
      assert(schedule.ownedSlice.flatten.sorted == (0 until schedule.slices))
      val parts = Array.tabulate(size, schedule.slices)((rank, _) => List(rank))
      val sent = schedule.reduce.flatten.flatMap(hop => (hop.fromSlice until hop.untilSlice).map(hop.from -> _))
      assert(sent.distinct == sent, s"${topology.name} of $size: a slice is sent twice")
      schedule.reduce.foreach { round =>
        val messages = round.map(hop => hop -> parts(hop.from).slice(hop.fromSlice, hop.untilSlice))
        messages.foreach { case (hop, values) =>
          (hop.fromSlice until hop.untilSlice).foreach(s =>
            parts(hop.to)(s) = parts(hop.to)(s) ++ values(s - hop.fromSlice)
          )
        }
      }
      val whole = Array.fill(size, schedule.slices)(false)
      schedule.ownedSlice.zipWithIndex.foreach { case (slice, rank) =>
        slice.foreach { s =>
          assert(parts(rank)(s).sorted == (0 until size).toList, s"${topology.name} of $size: slice $s")
          whole(rank)(s) = true
        }
      }
      schedule.gather.foreach { round =>
        assert(round.forall(hop => (hop.fromSlice until hop.untilSlice).forall(whole(hop.from)(_))))
        round.foreach(hop => (hop.fromSlice until hop.untilSlice).foreach(whole(hop.to)(_) = true))
      }
      assert(whole.forall(_.forall(identity)), s"${topology.name} of $size: not everybody has everything")
    case _ => cancel(s"${topology.name} is not a schedule")
  }
}
