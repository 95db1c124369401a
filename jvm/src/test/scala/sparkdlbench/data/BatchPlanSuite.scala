package sparkdlbench.data

import org.scalatest.funsuite.AnyFunSuite
import sparkdlbench.common.ConfigurationException

class BatchPlanSuite extends AnyFunSuite {
  test("the shares of all ranks in all steps cover an epoch exactly once, in order, whatever divides what") {
    for {
      rows <- Seq(1, 2, 10, 101, 1438)
      workers <- 1 to 5
      batch <- Seq(workers, workers + 1, 7, 64, 2000) if batch >= workers
    } {
      val plan = BatchPlan(rows, batch, workers)
      val shares = for (step <- 0 until plan.stepsPerEpoch; rank <- 0 until workers) yield plan.share(step, rank)
      assert(shares.head._1 == 0 && shares.last._2 == rows, plan.toString)
      shares.sliding(2).foreach(pair => assert(pair.length < 2 || pair.head._2 == pair.last._1, plan.toString))
      shares.foreach { case (from, until) => assert(until - from <= plan.maxShare && until >= from, plan.toString) }
      val sizes = (0 until plan.stepsPerEpoch).map(plan.batchRows)
      assert(sizes.sum == rows && sizes.init.forall(_ == batch) && sizes.last >= 1, plan.toString)
    }
  }

  test("shares of one step differ by at most one row") {
    val plan = BatchPlan(1000, 130, 4)
    val sizes = (0 until 4).map { rank =>
      val (from, until) = plan.share(0, rank); until - from
    }
    assert(sizes == Seq(33, 33, 32, 32))
    assert((0 until 4).map { rank =>
      val (from, until) = plan.share(7, rank); until - from
    } == Seq(23, 23, 22, 22))
  }

  test("the rows of a step do not depend on the number of workers") {
    (1 to 4).foreach { workers =>
      val plan = BatchPlan(1438, 130, workers)
      assert(plan.share(3, 0)._1 == 390 && plan.share(3, workers - 1)._2 == 520)
    }
  }

  test("steps of a run are counted through the epochs") {
    val plan = BatchPlan(100, 30, 2)
    assert(plan.stepsPerEpoch == 4)
    assert((plan.epochOf(0), plan.stepInEpoch(0)) == ((0, 0)))
    assert((plan.epochOf(9), plan.stepInEpoch(9)) == ((2, 1)))
  }

  test("the largest counts do not overflow") {
    val plan = BatchPlan(Int.MaxValue, Int.MaxValue - 1, 3)
    assert(plan.stepsPerEpoch == 2)
    assert(plan.share(1, 2)._2 == Int.MaxValue)
  }

  test("fewer rows than workers in a batch is refused with the remedy") {
    val error = intercept[ConfigurationException](BatchPlan(100, 3, 4))
    assert(error.getMessage.contains("batch of 3") && error.getMessage.contains("`workers` to 3 or less"))
    intercept[ConfigurationException](BatchPlan(0, 3, 2))
  }
}
