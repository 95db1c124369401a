package sparkdlbench.collective

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.topology.{Sliced, TestCodecs}
import sparkdlbench.transport.{InMemoryConditions, RankGroups, ThreadGroup, Transport}
import sparkdlbench.vector.FlatBuffer

import java.nio.{ByteBuffer, ByteOrder}

/** Whatever has messages of its own opens its own lanes: a step's collectives and the others side by side on one transport. */
class LanesBesideSuite extends AnyFunSuite {
  private val (length, steps) = (11, 5)

  /** What a rank found in each step: the all-reduce of the step, the numbers' sum within it, and what came besides. */
  private def rank(transport: Transport): Seq[Seq[Double]] = {
    val sums = new NumberSums(transport, 2)
    val (gradient, parameters) = (new FlatBuffer(length), new FlatBuffer(length))
    val plain = TestCodecs.plain.head
    val collective = new Sliced().bind(transport, gradient, parameters, 4, plain, plain)
    val group = Collective.open(transport, 64)
    val announcements = new Announcements(transport)
    val statistics = new FlatBuffer(3)
    val mean = new VectorMean(transport, statistics, transport.size)
    val shown = new VectorGather(transport, Seq(2, 1))
    (0 until steps).map { step =>
      val mine = transport.rank + 1.0 + step
      (0 until length).foreach(gradient.floats.put(_, mine.toFloat))
      (0 until collective.buckets).foreach(collective.contribute(_, step.toLong))
      (0 until collective.buckets).foreach(collective.reduce(_, step.toLong))
      val number = Array(mine, 2 * mine)
      sums.sum(number) // as clipping does, in the middle of the step
      for (bucket <- 0 until collective.buckets) {
        val (from, until) = collective.owned(bucket)
        for (i <- from until until) parameters.floats.put(i, gradient.floats.get(i))
        collective.publish(bucket, step.toLong)
      }
      val gathered = shown.gather(Array(mine.toFloat)).take(transport.size).map(_.toDouble)
      (0 until collective.buckets).foreach(collective.collect(_, step.toLong))
      collective.flush()
      val data = ByteBuffer.allocateDirect(8).order(ByteOrder.nativeOrder()).putDouble(0, mine)
      group.allReduce(data, ElementType.Float64, Reduction.Sum)
      (0 until 3).foreach(statistics.floats.put(_, mine.toFloat))
      mean.average()
      val told = announcements.announced(10L + step)
      assert(parameters.toArray.distinct.length == 1)
      Seq(parameters.floats.get(0).toDouble, number(0), number(1), data.getDouble(0)) ++
        Seq(statistics.floats.get(2).toDouble, told.toDouble) ++ gathered
    }
  }

  private def expected(size: Int): Seq[Seq[Double]] = (0 until steps).map { step =>
    val each = (1 to size).map(_ + step.toDouble)
    Seq(each.sum, each.sum, 2 * each.sum, each.sum, each.sum / size, 10.0 + step) ++ each
  }

  test("they do not get into each other's way, in whatever order messages arrive") {
    for (size <- 1 to 4; seed <- Seq(None, Some(1L), Some(2L))) {
      val found = ThreadGroup.run(size, InMemoryConditions(delaySeed = seed))(rank)
      found.foreach(_.zip(expected(size)).foreach { case (a, b) =>
        assert(a.zip(b).forall { case (x, y) => math.abs(x - y) < 1e-5 }, s"$size ranks, $a")
      })
      assert(found.distinct.size == 1)
    }
  }

  test("lanes are numbered one after the other, the same at all ranks") {
    val numbers = ThreadGroup.run(3) { transport =>
      val before = transport.lanesOpened
      new NumberSums(transport, 1): Unit
      val between = transport.lanesOpened
      Collective.open(transport, 64): Unit
      Seq(before, between, transport.lanesOpened)
    }
    assert(numbers.distinct == IndexedSeq(Seq(0, 4, 4 + 18)))
  }

  test("they go together with ranks that sum in memory first") {
    val groups = Some(RankGroups(IndexedSeq(IndexedSeq(0, 2), IndexedSeq(1, 3))))
    val found = ThreadGroup.run(4, InMemoryConditions(delaySeed = Some(3L), groups = groups))(rank)
    assert(found.distinct.size == 1)
  }
}
