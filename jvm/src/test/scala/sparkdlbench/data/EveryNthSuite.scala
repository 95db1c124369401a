package sparkdlbench.data

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.config.Settings

class EveryNthSuite extends AnyFunSuite {
  private def ids(every: EveryNth): Seq[Int] = (0 until every.testRows).map(row => every(row))

  /** Rows whose one value and label are their number. */
  private def numbered(numbers: Seq[Int]): RowStore = {
    val blocks = RowBlocks.onHeap(numbers.size, 1)
    numbers.zipWithIndex.foreach { case (number, row) => blocks.write(row, Array(number.toByte)) }
    new HeldRowStore(blocks, ValueKind.UInt8, numbers.toArray, 1)
  }
  private def labels(store: RowStore): Seq[Int] =
    if (store.rows == 0) Nil else SourceFixture.rows(store).map(_._1)

  test("one row of each whole stretch tests, and the others train, in order, whichever of them are taken") {
    for (all <- Seq(1, 2, 5, 24, 25, 100); n <- Seq(2, 3, 5, 9, 200); share <- Seq(1.0, 0.5, 0.1)) {
      val every = new EveryNth(all, n)
      val test = ids(every)
      assert(every.testRows == all / n && test.zipWithIndex.forall { case (id, stretch) => id / n == stretch })
      assert((0 until all).filter(id => every.tests(id)) == test)
      val train = (0 until all).filterNot(test.toSet)
      val taken =
        TakenRows.of(train.size, Settings.resolve(Map("data.share" -> share.toString), Seq(DataKeys.share)))
      val wanted = (0 until taken.rows).map(row => train(taken(row)))
      val held = (0 until all).filter(id => every.holds(id, taken))
      assert(held == (test ++ wanted).sorted, s"$all by $n, $share of them")
      val sets = every.split(numbered(held), taken)
      assert(labels(sets.train) == wanted && labels(sets.test) == test, s"$all by $n, $share of them")
    }
  }

  test("the rows are the published ones, on every platform") {
    assert(ids(new EveryNth(50, 5)) == Seq(2, 8, 11, 17, 24, 26, 33, 39, 41, 49))
  }

  test("every class trains and tests, be the rows sorted by class or the classes in turns") {
    val every = new EveryNth(1000, 5)
    val (test, train) = (0 until 1000).partition(id => every.tests(id))
    for (label <- 0 until 10) {
      assert(test.count(_ / 100 == label) == 20)
      val inTurns = test.count(_ % 10 == label)
      assert(inTurns > 10 && inTurns < 40 && train.count(_ % 10 == label) == 100 - inTurns)
    }
  }

  test("the largest counts do not overflow") {
    val half = new EveryNth(Int.MaxValue, 2)
    assert(half.testRows == Int.MaxValue / 2)
    val last = half(half.testRows - 1)
    assert(last >= Int.MaxValue - 3 && half.tests(last) && !half.tests(Int.MaxValue - 1))
    assert(new EveryNth(Int.MaxValue, Int.MaxValue).apply(0) >= 0)
  }
}
