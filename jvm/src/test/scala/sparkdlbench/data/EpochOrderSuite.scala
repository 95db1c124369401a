package sparkdlbench.data

import org.scalatest.funsuite.AnyFunSuite

class EpochOrderSuite extends AnyFunSuite {
  test("each epoch visits every row exactly once") {
    Seq(1, 2, 3, 10, 1438, 60000).foreach { rows =>
      assert(EpochOrder.permutation(7, 3, rows).sorted.sameElements(Array.range(0, rows)))
    }
    assert(EpochOrder.permutation(7, 3, 0).isEmpty)
  }

  test("the order is that of its arguments: repeated, it is the same; another seed or epoch gives another") {
    val order = EpochOrder.permutation(1, 2, 1000).toSeq
    assert(EpochOrder.permutation(1, 2, 1000).toSeq == order)
    assert(EpochOrder.permutation(2, 2, 1000).toSeq != order)
    assert(EpochOrder.permutation(1, 3, 1000).toSeq != order)
    assert(EpochOrder.permutation(2, 1, 1000).toSeq != order)
  }

  test("the order is the published one, on every platform") {
    assert(EpochOrder.permutation(0, 0, 10).toSeq == GoldenSeed0)
    assert(EpochOrder.permutation(42, 7, 10).toSeq == GoldenSeed42)
  }

  test("every place is equally likely for every row") {
    val counts = Array.ofDim[Int](5, 5)
    (0 until 20000).foreach { epoch =>
      EpochOrder.permutation(11, epoch, 5).zipWithIndex.foreach { case (row, place) => counts(row)(place) += 1 }
    }
    // Binomial with n = 20,000 and p = 1/5: 4,000 with a standard deviation of 57.
    counts.foreach(_.foreach(count => assert(math.abs(count - 4000) < 6 * 57)))
  }

  private val GoldenSeed0 = Seq(4, 9, 2, 5, 1, 7, 6, 0, 3, 8)
  private val GoldenSeed42 = Seq(9, 7, 8, 0, 3, 2, 5, 6, 1, 4)
}
