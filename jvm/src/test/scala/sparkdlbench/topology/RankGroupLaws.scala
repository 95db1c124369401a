package sparkdlbench.topology

import sparkdlbench.OnOneLine
import sparkdlbench.codec.{Bf16, Codec}
import sparkdlbench.config.Variants
import sparkdlbench.transport.{InMemoryConditions, RankGroups, ThreadGroup, Transport}
import sparkdlbench.vector.FlatBuffer

import java.lang.Float.floatToRawIntBits
import scala.util.Random

/** What holds for every topology where some ranks sum in memory first, whatever the groups. */
class RankGroupLaws extends OnOneLine {
  private val topologies = Variants.all[Topology].filter(_.amongRanks)
  private val plain = TestCodecs.plain.head

  private def groups(members: Seq[Int]*): RankGroups = RankGroups(members.map(_.toIndexedSeq).toIndexedSeq)

  private val several = Seq(
    groups(Seq(0, 1)),
    groups(Seq(0, 1, 2)),
    groups(Seq(0), Seq(1, 2)),
    groups(Seq(0, 2), Seq(1, 3)),
    groups(Seq(0, 1, 2), Seq(3, 4)),
    groups(Seq(0, 4), Seq(1), Seq(2, 3)),
    groups(Seq(0, 1), Seq(2, 5), Seq(3, 4)),
    groups(Seq(0, 1, 2, 3, 4, 5, 6))
  )

  private def onThreads[T](groups: RankGroups, delaySeed: Option[Long] = None)(body: Transport => T): IndexedSeq[T] =
    ThreadGroup.run(groups.size, InMemoryConditions(delaySeed = delaySeed, groups = Some(groups)))(body)

  for (topology <- topologies) {
    test(s"${topology.name}: sums, parameters and bytes are those stated, over any groups") {
      val codecs = TestCodecs.all.filter(codec => Seq("test-", "fp32", "bf16").exists(codec.name.startsWith))
      for {
        groups <- several
        gradientCodec <- codecs
        parameterCodec <- Seq(gradientCodec, plain).distinct
        if topology.refuses(groups.size, gradientCodec, parameterCodec).isEmpty
        (length, bucketLength) <- Seq((0, 5), (1, 1), (3, 8), (17, 3), (4001, 1500))
      } check(CollectiveCheck(topology, gradientCodec, parameterCodec, length, bucketLength, 4), groups, None)
    }

    test(s"${topology.name}: late and reordered arrival, in one buffer and in two, over any groups") {
      ThreadGroup.together(1L to 2L) { seed =>
        for (groups <- several; inPlace <- Seq(false, true); codec <- TestCodecs.plain)
          check(CollectiveCheck(topology, codec, codec, 41, 14, 4, inPlace), groups, Some(seed))
      }
    }

    test(s"${topology.name}: every rank alone is the topology's own schedule") {
      for (size <- 1 to 9)
        assert(GroupedSchedule.of(scheduled(topology), RankGroups.alone(size)) == scheduled(topology).schedule(size))
    }

    test(s"${topology.name}: what groups send to each other is what one rank a group would send") {
      for (groups <- several; length <- Seq(1, 1000, 4001)) {
        val sent =
          (0 until groups.size).map(topology.bytesPerStep(_, groups, length, 512, plain, plain).betweenGroups.get)
        val alone = RankGroups.alone(groups.count)
        val leaders = (0 until groups.count).map(topology.bytesPerStep(_, alone, length, 512, plain, plain).total.get)
        assert(sent.sum == leaders.sum, s"${topology.name}, $groups, $length values")
      }
    }

    test(s"${topology.name}: the same bits on all ranks and in all runs; lossy codecs round nothing within a group") {
      for (groups <- several; codec <- Seq[Codec](plain, new Bf16)) {
        val runs = (None +: (1L to 2L).map(Some(_))).map(onThreads(groups, _)(fractions(topology, codec, 1009, 400)))
        runs.foreach(run => assert(run.forall(_ == runs.head.head), s"${topology.name} ${codec.name} $groups"))
        if (groups.count == 1)
          assert(runs.head.head == expected(groups, 1009), s"${topology.name} ${codec.name} $groups")
      }
    }
  }

  test("sliced sums within groups in the order of ranks, then over groups in the order of the ranks that lead") {
    def inOrder(groups: RankGroups) =
      (0 until groups.members.map(_.size).min).forall(plane =>
        groups.members.map(_(plane)) == groups.members.map(_(plane)).sorted
      )
    assert(several.count(inOrder) > 5)
    for (groups <- several if inOrder(groups))
      assert(onThreads(groups)(fractions(new Sliced, plain, 257, 100)).head == expected(groups, 257), groups)
  }

  test("groups of equal size share the work evenly") {
    val groups = this.groups(Seq(0, 2), Seq(1, 3))
    val sent = (0 until 4).map((new Sliced).bytesPerStep(_, groups, 4000, 4000, plain, plain))
    // In the group: half of the gradient out, half of the parameters; between: the two directions of a quarter.
    assert(sent.forall(_ == StepBytes(2 * 2000 * 4, Some(2 * 1000 * 4))))
  }

  test(
    "codecs with error feedback: a group's sum is encoded once, and what is left out stays where it can leave again"
  ) {
    for (groups <- several) {
      val results = onThreads(groups)(remainders)
      for (i <- 0 until 101) {
        val inputs = (0L until 6L).map(CollectiveCheck.sumOfInputs(groups.size, _)(i)).sum
        assert(results.map { case (sums, residual) => sums(i) + residual(i) }.sum == inputs, s"$groups, value $i")
      }
      val residuals = results.map(_._2)
      assert(residuals.exists(_.exists(_ != 0f)) == groups.count > 1)
    }
  }

  private def remainders(transport: Transport): (Array[Float], Array[Float]) = {
    val gradient = new FlatBuffer(101)
    val sums = new Array[Float](101)
    val collective = (new Sliced).bind(transport, gradient, new FlatBuffer(101), 40, TestCodecs.Remainders, plain)
    for (sequence <- 0L until 6L) {
      (0 until 101).foreach(i => gradient.floats.put(i, CollectiveCheck.input(transport.rank, i, sequence)))
      step(collective, sequence) { case (from, until) =>
        (from until until).foreach(i => sums(i) += gradient.floats.get(i))
      }
    }
    val residual = collective.residual.fold(new Array[Float](101))(_.toArray)
    val leaves = collective.encoded.flatMap(range => range.from until range.until).toSet
    assert(residual.indices.forall(i => residual(i) == 0f || leaves(i)))
    assert(collective.encoded.forall(range => range.ranks.contains(transport.rank)))
    (sums, residual)
  }

  private def step(collective: Collective, sequence: Long)(update: ((Int, Int)) => Unit): Unit = {
    (0 until collective.buckets).foreach(collective.contribute(_, sequence))
    (0 until collective.buckets).foreach { bucket =>
      collective.reduce(bucket, sequence)
      update(collective.owned(bucket))
      collective.publish(bucket, sequence)
    }
    (0 until collective.buckets).foreach(collective.collect(_, sequence))
    collective.flush()
  }

  private def scheduled(topology: Topology): Scheduled = topology.asInstanceOf[Scheduled]

  private def check(check: CollectiveCheck, groups: RankGroups, delaySeed: Option[Long]): Unit = {
    val owned = onThreads(groups, delaySeed)(check.run)
    val covered = new Array[Int](check.length)
    owned.flatten.foreach { case (from, until) => (from until until).foreach(covered(_) += 1) }
    assert(covered.forall(_ == 1), s"${check.label} $groups: $owned")
  }

  private def fraction(rank: Int, length: Int): IndexedSeq[Float] = {
    val random = new Random(rank)
    IndexedSeq.fill(length)((random.nextGaussian() * math.pow(10, random.nextInt(6) - 3.0)).toFloat)
  }

  private def expected(groups: RankGroups, length: Int): IndexedSeq[Int] = {
    val sums = groups.members.map(_.map(fraction(_, length)).transpose.map(_.reduceLeft(_ + _)))
    sums.transpose.map(values => floatToRawIntBits(values.reduceLeft(_ + _)))
  }

  /** The bits of the parameters after a step on values whose sums depend on the order. */
  private def fractions(topology: Topology, codec: Codec, length: Int, bucketLength: Int)(
      transport: Transport
  ): IndexedSeq[Int] = {
    val gradient = new FlatBuffer(length)
    val parameters = new FlatBuffer(length)
    val collective = topology.bind(transport, gradient, parameters, bucketLength, codec, codec)
    assert(collective.roundsParameters == (!codec.lossless && transport.groups.count > 1))
    gradient.floats.put(0, fraction(transport.rank, length).toArray)
    step(collective, 0) { case (from, until) =>
      (from until until).foreach(i => parameters.floats.put(i, gradient.floats.get(i)))
    }
    parameters.toArray.toIndexedSeq.map(value => floatToRawIntBits(value))
  }
}
