package sparkdlbench.algorithm

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.rank.{DataPosition, RankSnapshot, Snapshot, StateRange}
import sparkdlbench.topology.{EncodedRange, Sliced, TestCodecs}
import sparkdlbench.transport.{InMemoryConditions, RankGroups, ThreadGroup}
import sparkdlbench.vector.FlatBuffer

class ResidualsSuite extends AnyFunSuite {
  private val length = 53

  private def groups(members: Seq[Int]*): RankGroups = RankGroups(members.map(_.toIndexedSeq).toIndexedSeq)

  /** By rank: what it sends encoded. */
  private def encoded(groups: RankGroups): IndexedSeq[Seq[EncodedRange]] =
    ThreadGroup.run(groups.size, InMemoryConditions(groups = Some(groups))) { transport =>
      val (gradient, parameters) = (new FlatBuffer(length), new FlatBuffer(length))
      new Sliced().bind(transport, gradient, parameters, 20, TestCodecs.Remainders, TestCodecs.plain.head).encoded
    }

  /** Ranks leave out different powers of two where they send, so that sums tell whose they hold. */
  private def snapshot(of: RankGroups): Snapshot = {
    val parts = encoded(of).zipWithIndex.map { case (ranges, rank) =>
      val left = new Array[Float](length)
      ranges.foreach(range => (range.from until range.until).foreach(i => left(i) = (1 << rank).toFloat))
      RankSnapshot(
        7,
        rank,
        of.size,
        of.members.find(_.contains(rank)).get.head,
        DataPosition(50, 1, 1438),
        0,
        Seq(StateRange(Residuals.name(rank), 0, left))
      )
    }
    Snapshot(7, parts)
  }

  private def restored(before: RankGroups, now: RankGroups): IndexedSeq[Array[Float]] = {
    val from = snapshot(before)
    assert(from.groups == before)
    encoded(now).zipWithIndex.map { case (ranges, rank) => Residuals.restored(from, rank, now.size, length, ranges) }
  }

  test("with the same ranks and groups everyone has its own") {
    for (same <- Seq(RankGroups.alone(3), groups(Seq(0, 2), Seq(1, 3)), groups(Seq(0, 1, 2), Seq(3, 4)))) {
      val from = snapshot(same)
      restored(same, same).zipWithIndex.foreach { case (own, rank) =>
        assert(own.toSeq == from.vector(Residuals.name(rank), length).get.toSeq)
      }
    }
  }

  test("with other ranks or groups nothing is lost, and everything is where it can leave") {
    val layouts =
      Seq(RankGroups.alone(2), RankGroups.alone(4), groups(Seq(0, 2), Seq(1, 3)), groups(Seq(0), Seq(1, 2, 3)))
    for (before <- layouts; now <- layouts) {
      val after = restored(before, now)
      val left = snapshot(before).parts.flatMap(_.ranges)
      for (i <- 0 until length)
        assert(after.map(_(i)).sum == left.map(_.values(i)).sum, s"$before to $now, value $i")
      after.zip(encoded(now)).foreach { case (own, ranges) =>
        val leaves = ranges.flatMap(range => range.from until range.until).toSet
        assert(own.indices.forall(i => own(i) == 0f || leaves(i)))
      }
    }
  }
}
