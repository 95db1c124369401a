package sparkdlbench.data

import org.scalatest.funsuite.AnyFunSuite

class SharesSuite extends AnyFunSuite {
  private def sizes(shares: Shares, rows: Int, ranks: Int): Seq[Int] =
    (0 until ranks).map(shares.of(rows, _)).map { case (from, until) => until - from }

  private def covers(shares: Shares, rows: Int, ranks: Int): Boolean = {
    val parts = (0 until ranks).map(shares.of(rows, _))
    parts.head._1 == 0 && parts.last._2 == rows && parts.zip(parts.tail).forall { case (one, next) =>
      one._2 == next._1
    }
  }

  test("by speed all are done at about the same time, and everybody has a row") {
    assert(sizes(Shares.bySpeed(IndexedSeq(100.0, 100.0), 64, 64), 64, 2) == Seq(32, 32))
    assert(sizes(Shares.bySpeed(IndexedSeq(300.0, 100.0), 64, 64), 64, 2) == Seq(48, 16))
    assert(sizes(Shares.bySpeed(IndexedSeq(1e9, 1.0, 1e9), 100, 100), 100, 3).sorted == Seq(1, 49, 50))
    assert(sizes(Shares.bySpeed(IndexedSeq(5.0), 7, 7), 7, 1) == Seq(7))
    assert(sizes(Shares.bySpeed(IndexedSeq(5.0, 1.0), 2, 1), 2, 2) == Seq(1, 1))
  }

  test("nobody gets more than there is room for") {
    assert(sizes(Shares.bySpeed(IndexedSeq(900.0, 50.0, 50.0), 90, 60), 90, 3) == Seq(60, 15, 15))
  }

  test("steps of any size are covered, in proportion and within the room") {
    val shares = Shares.bySpeed(IndexedSeq(7.0, 1.0, 3.0, 2.0), 130, 65)
    val whole = sizes(shares, 130, 4)
    for (rows <- 0 to 130) {
      assert(covers(shares, rows, 4) && covers(Shares.even(4), rows, 4))
      sizes(shares, rows, 4).zip(whole).foreach { case (some, all) => assert(math.abs(some - all * rows / 130.0) <= 1) }
    }
  }
}
