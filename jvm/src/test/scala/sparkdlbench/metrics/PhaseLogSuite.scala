package sparkdlbench.metrics

import org.scalatest.funsuite.AnyFunSuite

class PhaseLogSuite extends AnyFunSuite {
  private def phases(computeMillis: Long, waitMillis: Long): Array[Long] = {
    val nanos = new Array[Long](Phase.names.size)
    nanos(Phase.Compute) = computeMillis * 1000000
    nanos(Phase.Wait) = waitMillis * 1000000
    nanos
  }

  test("sums of all steps; of a long run every so many steps are kept, the same ones by every rank") {
    val log = new PhaseLog(8)
    for (step <- 0 until 1000) assert(log.add(phases(step.toLong, 2)) == (step + 2) * 1000000L)
    val record = log.record
    assert(record.steps == 1000 && record.nanos(Phase.Compute) == 999 * 500 * 1000000L)
    assert(record.every == 128 && record.keptSteps == 8)
    assert((0 until 8).map(record.millis(_, Phase.Compute)) == (0 until 8).map(_ * 128f))
    assert((0 until 8).forall(record.millis(_, Phase.Wait) == 2f))
    assert(record.phasesMillis(Phase.Wait) == 2.0)
    val short = new PhaseLog(8)
    (0 until 8).foreach(step => short.add(phases(step.toLong, 0)))
    assert(short.record.every == 1 && short.record.keptSteps == 8)
    assert(new PhaseLog(2).record.keptSteps == 0)
  }

  test("fewer steps where there are more ranks") {
    assert(Seq(1, 16, 32, 100, 100000).map(PhaseLog.stepsKept) == Seq(4096, 4096, 2048, 654, 64))
  }

  test("the rank that waited least made the others wait, by the difference") {
    val waited = IndexedSeq(Seq(5L, 0L), Seq(1L, 4L), Seq(3L, 2L))
    val records = waited.map { each =>
      val log = new PhaseLog(4)
      each.foreach(millis => log.add(phases(9, millis)))
      log.record
    }
    val waits = new Waits(records)
    assert(waits.last == Seq(1, 0) && waits.othersMillis == Seq(6.0, 6.0))
    assert((0 to 2).map(waits.causedSeconds) == Seq(0.006, 0.006, 0.0))
    // Of a run that kept every second step they tell of both.
    val half = records.map(_.copy(steps = 4, every = 2))
    assert(new Waits(half).causedSeconds(1) == 0.012)
    assert(new Waits(IndexedSeq.empty).causedSeconds(0) == 0)
  }
}
