package sparkdlbench.bench

import org.scalatest.funsuite.AnyFunSuite

import scala.collection.mutable.ArrayBuffer

class TimingSuite extends AnyFunSuite {
  test("each sample is its own step's time, after a warm-up that is made and not timed") {
    var clock = 0L
    val made = ArrayBuffer.empty[Long]
    val found = Timing.nanos(3, 4, () => clock) { number =>
      made += number
      clock += 1000 * (number + 1)
    }
    assert(found.toSeq == Seq(4000L, 5000L, 6000L, 7000L))
    assert(made == (0L until 7L))
  }

  test("without a warm-up the first step is the first sample, and no sample is none") {
    var clock = 5L
    def step(number: Long): Unit = clock += number + 1
    assert(Timing.nanos(0, 2, () => clock)(step).toSeq == Seq(1L, 2L))
    assert(Timing.nanos(2, 0, () => clock)(step).isEmpty)
    assert(clock == 5 + 1 + 2 + 1 + 2)
  }

  test("the clock is the system's where none is given") {
    val before = System.nanoTime()
    val found = Timing.nanos(0, 1)(_ => Thread.sleep(2))
    assert(found.head >= 1000000L && found.head <= System.nanoTime() - before)
  }
}
